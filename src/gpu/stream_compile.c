/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans: make the kernel args, and lay out the GPU memory in which kernels count. */
#include "base/round.h"
#include "core/plan.h"
#include "core/region.h"
#include "gpu/proxy.h"
#include "gpu/stream_any.h"
#include "gpu/stream_some.h"
#include "gpu/times.h"

static const struct stepaf_stream_kernels all_kernels = {
    .send = {STEPAF_KERNEL_SEND, STEPAF_KERNEL_SEND_CHUNKS},
    .gate = STEPAF_KERNEL_GATE,
    .unpack = {STEPAF_KERNEL_UNPACK, STEPAF_KERNEL_UNPACK_CHUNKS},
};

enum {
    ALIGN = 512,        /* of items in the control memory */
    COPY_MIN = 32 << 20 /* from this size on a copy engine is faster than all blocks together */
};

/* ---- control memory: failed; sizes that have landed, slot by slot; then for each launch of each
 * slot the counts, and for launches that send done ---- */

static uint64_t counts_bytes(void)
{
    return stepaf_round_up((STEPAF_LAUNCH_BLOCKS + 1) * sizeof(uint32_t), ALIGN);
}

/* Unpacking kernels count only where they do not know whose batch it is, or look for stamps. */
static uint64_t receive_counts_bytes(const struct stepaf_stream *stream)
{
    return stream->launches.counts ? counts_bytes() : ALIGN;
}

static uint64_t done_bytes(void)
{
    return stepaf_round_up(STEPAF_KERNEL_TENSORS * sizeof(uint32_t), ALIGN);
}

static uint64_t landed_bytes(const struct stepaf_stream *stream)
{
    return stepaf_round_up((uint64_t)stream->plan->ctx->n_peers * stream->n_in * sizeof(uint32_t),
                           ALIGN);
}

uint64_t stepaf_stream_control_bytes(const struct stepaf_stream *stream)
{
    uint64_t slot = landed_bytes(stream) +
                    stream->launches.n_send * (counts_bytes() + done_bytes()) +
                    stream->launches.n_receive * receive_counts_bytes(stream);

    return ALIGN + stream->plan->depth * slot + stepaf_stream_guard_bytes(stream) +
           (stream->any ? stepaf_any_control_bytes(stream) : 0) +
           stepaf_some_control_bytes(stream) + stepaf_times_control_bytes(stream);
}

/* ---- kernel args ---- */

static struct stepaf_kernel_args kernel_args_begin(const struct stepaf_stream *stream, uint8_t slot,
                                                   uint8_t *control)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;

    return (struct stepaf_kernel_args){
        .failed = (uint32_t *)control,
        .watch = stream->watch,
        .timeout_ns = (uint64_t)ctx->env.stream_timeout_us * 1000,
        .epoch = ctx->epoch,
        .slot = slot,
    };
}

/* Set where a tensor's source of slot @a slot lies. */
static void set_source(const struct stepaf_stream *stream, uint32_t p, uint32_t i, uint8_t slot,
                       struct stepaf_kernel_tensor *tensor)
{
    const struct stepaf_plan_obj *plan = stream->plan;

    if (stepaf_is_attention(plan->ctx)) {
        tensor->data = plan->push[i].data;
        tensor->bytes = plan->push[i].bytes;
    } else {
        const struct stepaf_pull *pull = &plan->pull[p * plan->n_pull + i];
        tensor->data = pull->data + (size_t)slot * pull->key->max_bytes;
        tensor->bytes = pull->bytes;
    }
}

/* Return the region of that source. */
static const struct stepaf_region *source_region(const struct stepaf_stream *stream, uint32_t p,
                                                 uint32_t i)
{
    const struct stepaf_plan_obj *plan = stream->plan;

    return stepaf_is_attention(plan->ctx) ? plan->push[i].region
                                          : plan->pull[p * plan->n_pull + i].region;
}

bool stepaf_stream_copies(const struct stepaf_ctx *ctx, uint32_t p,
                          const struct stepaf_region *source)
{
    bool to_host = stepaf_peer_proxied(ctx, p) || ctx->gpu.streams->host[p].its;

    return !source || source->mem.kind == STEPAF_MEM_CUDA || !to_host;
}

/* A copy engine is better for large tensors, or with "ce" for all that is not sent in pieces. */
bool stepaf_stream_is_copied(uint32_t engine, uint8_t proto, uint32_t planned)
{
    if (proto != STEPAF_PROTO_ZCOPY && proto != STEPAF_PROTO_BCOPY)
        return false;
    if (engine == STEPAF_ENV_CUDA_ENGINE_auto)
        return planned >= COPY_MIN;
    return engine == STEPAF_ENV_CUDA_ENGINE_ce;
}

/* Return whether the epoch goes on with peer @a p. The tensors of other peers stay in the launch,
 * so that all tensors keep their places. */
static bool is_in(const struct stepaf_ctx *ctx, uint32_t p)
{
    return !ctx->peers[p].lost;
}

/* Set for each tensor which tensor gets TOLD_ALL: of a direct peer, the last tensor that copy
 * engines write. A proxied peer's heads belong to the host, which looks at each. */
static void set_leaders(const struct stepaf_ctx *ctx, struct stepaf_kernel_args *args)
{
    const struct stepaf_kernel_tensor *leader = NULL;

    for (uint32_t i = args->n_tensors; i-- > 0;) {
        struct stepaf_kernel_tensor *tensor = &args->tensors[i];
        if (!tensor->copied)
            continue;
        if (!leader || leader->peer != tensor->peer || stepaf_peer_proxied(ctx, tensor->peer))
            leader = tensor;
        tensor->copied = (uint8_t)(1 + (leader - args->tensors));
    }
}

/* Return whether a copy engine sends a tensor as far as its receiver, which does not know where the
 * source lies, can tell. Plans that do not wait for all answers have kernels copy instead: a copy
 * engine would copy in any case. */
static bool is_copied(const struct stepaf_stream *stream, const struct stepaf_kernel_tensor *tensor)
{
    uint32_t engine = (uint32_t)stream->plan->ctx->env.cuda_engine;

    return !stepaf_some_is_asked(stream) &&
           stepaf_stream_is_copied(engine, tensor->proto, tensor->bytes);
}

/* Set the chunk of a tensor of at most @a most bytes. */
static void set_chunk(struct stepaf_launch *launch, struct stepaf_kernel_tensor *tensor,
                      uint32_t most)
{
    if (!stepaf_proto_has_chunks(tensor->proto))
        return;
    tensor->chunk =
        tensor->proto == STEPAF_PROTO_PARTS ? stepaf_part_bytes(most) : stepaf_chunk_bytes(most);
    launch->chunks = true;
}

static void compile_send(const struct stepaf_stream *stream, const struct stepaf_stream_dst *dsts,
                         uint32_t first, uint32_t n, struct stepaf_launch *launch)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;
    struct stepaf_kernel_args *args = &launch->args;

    for (uint32_t at = first; at < first + n; at++) {
        const struct stepaf_stream_dst *dst = &dsts[at];
        struct stepaf_kernel_tensor *tensor = &args->tensors[args->n_tensors++];
        tensor->peer = (uint16_t)(at / stream->n_out);
        launch->sources[at - first] = source_region(stream, tensor->peer, at % stream->n_out);
        if (!is_in(ctx, tensor->peer)) { /* no block works for this tensor */
            set_source(stream, tensor->peer, at % stream->n_out, args->slot, tensor);
            continue;
        }
        launch->places[at - first] = dst->allocation;
        tensor->proto = dst->proto;
        tensor->head = dst->mailbox + (size_t)args->slot * dst->stride;
        tensor->body = dst->place ? dst->place + (size_t)args->slot * dst->pitch
                                  : tensor->head + STEPAF_HEAD_BYTES;
        set_source(stream, tensor->peer, at % stream->n_out, args->slot, tensor);
        bool known = is_copied(stream, tensor);
        tensor->copied =
            known && stepaf_stream_copies(ctx, tensor->peer, launch->sources[at - first]);
        launch->copies = launch->copies || tensor->copied;
        if (known && !tensor->copied && !stepaf_peer_proxied(ctx, tensor->peer))
            launch->told_each = true;
        if (tensor->proto == STEPAF_PROTO_RDMA) {
            stepaf_stream_guard_tensor(tensor, stream->launches.guarded);
            launch->chunks = true;
        }
        set_chunk(launch, tensor, dst->bytes);
    }
    set_leaders(ctx, args);
    launch->blocks = stepaf_stream_distribute(args, true, stepaf_stream_blocks(ctx));
    stepaf_stream_touch(args);
}

static void compile_receive(const struct stepaf_stream *stream, uint32_t first, uint32_t n,
                            struct stepaf_launch *launch)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;
    struct stepaf_kernel_args *args = &launch->args;

    for (uint32_t at = first; at < first + n; at++) {
        const struct stepaf_mailbox *mailbox = &stream->mailboxes[at];
        struct stepaf_kernel_tensor *tensor = &args->tensors[args->n_tensors++];
        tensor->peer = (uint16_t)(at / stream->n_in);
        tensor->data = mailbox->data + (size_t)args->slot * mailbox->pitch;
        if (!is_in(ctx, tensor->peer) && !stream->any) /* with any, no kernel waits for it */
            continue;
        tensor->proto = mailbox->proto;
        tensor->head = mailbox->in_host ? ctx->gpu.streams->host[tensor->peer].mem.base
                                        : ctx->gpu.streams->mailboxes;
        tensor->head += mailbox->offset + (size_t)args->slot * mailbox->stride;
        tensor->body = tensor->head + STEPAF_HEAD_BYTES;
        if (mailbox->proxied) {
            const struct stepaf_proxy_buf *its = &stream->proxy->in[at];
            tensor->head = its->heads + (size_t)args->slot * its->head_pitch;
            tensor->body = its->data + (size_t)args->slot * its->pitch;
        }
        tensor->bytes = mailbox->bytes;
        tensor->planned = mailbox->planned;
        tensor->copied = mailbox->copied;
        set_chunk(launch, tensor, mailbox->bytes);
    }
    set_leaders(ctx, args);
    stepaf_kernel_tensors_fill(args);
    launch->threads = stepaf_stream_set_gate(args, !stepaf_some_is_asked(stream));
    launch->blocks = stepaf_stream_distribute(args, false, stepaf_stream_blocks(ctx));
    args->gate_ends = !launch->blocks;
    stepaf_stream_touch(args);
}

static uint32_t min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void stepaf_stream_compile(struct stepaf_stream *stream, const struct stepaf_stream_dst *dsts,
                           uint8_t *control)
{
    uint32_t n_out = stream->plan->ctx->n_peers * stream->n_out;
    uint32_t n_in = stream->plan->ctx->n_peers * stream->n_in;
    uint32_t each_out = stepaf_launch_peers(stream->n_out) * stream->n_out;
    uint32_t each_in = stepaf_launch_peers(stream->n_in) * stream->n_in;
    uint8_t *landed = control + ALIGN, *at = landed + stream->plan->depth * landed_bytes(stream);
    struct stepaf_launch *launch = stream->launches.send;

    stream->launches.kernels = &all_kernels;
    stream->launches.guarded = stepaf_stream_is_guarded(stream);
    for (uint8_t slot = 0; slot < stream->plan->depth; slot++)
        for (uint32_t first = 0; first < n_out; first += each_out, launch++) {
            *launch = (struct stepaf_launch){.args = kernel_args_begin(stream, slot, control)};
            launch->args.counts = (uint32_t *)at;
            launch->args.done = (uint32_t *)(at + counts_bytes());
            at += counts_bytes() + done_bytes();
            compile_send(stream, dsts, first, min(each_out, n_out - first), launch);
        }
    launch = stream->launches.receive;
    /* A graph of an old epoch looks into its mailboxes if it unpacks. Where ranks come and go,
     * everything that no graph holds must be freed, so captures must be known. */
    stream->launches.sees_graphs = stream->plan->ctx->job.members.has_changed;
    for (uint8_t slot = 0; slot < stream->plan->depth; slot++, landed += landed_bytes(stream))
        for (uint32_t first = 0; first < n_in; first += each_in, launch++) {
            *launch = (struct stepaf_launch){.args = kernel_args_begin(stream, slot, control)};
            launch->args.counts = (uint32_t *)at;
            launch->args.landed = (uint32_t *)landed + first;
            at += receive_counts_bytes(stream);
            compile_receive(stream, first, min(each_in, n_in - first), launch);
            stream->launches.sees_graphs = stream->launches.sees_graphs || launch->blocks;
        }
    for (uint8_t slot = 0; slot < stream->plan->depth; slot++) {
        struct stepaf_kernel_args args = kernel_args_begin(stream, slot, control);
        at = stepaf_stream_guard_compile(stream, &args, at);
    }
    stepaf_some_compile(stream, at);
}
