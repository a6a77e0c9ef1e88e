/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans: which way each tensor comes, where its mailbox lies, and what the kernels are told. */
#include <stdlib.h>
#include <string.h>

#include "base/round.h"
#include "core/plan.h"
#include "core/region.h"
#include "gpu/proxy.h"
#include "gpu/stream_any.h"

enum {
    ALIGN = 512,        /* of mailboxes, and of what the control memory holds */
    COPY_MIN = 32 << 20 /* from here on a copy engine is faster than all blocks together */
};

/* Whether another plan receives a key in the same buffers. Its peers know nothing of this one's: what is
 * written there in place may come while the batch of this one is still read. */
static bool is_shared(const struct stepaf_plan_obj *plan, const struct stepaf_key *key)
{
    const struct stepaf_ctx *ctx = plan->ctx;

    for (uint32_t i = 0; i < ctx->tables.plans.n; i++) {
        const struct stepaf_plan_obj *other = stepaf_table_get(&ctx->tables.plans, i);
        for (uint32_t k = 0; other && other != plan && other->stream && k < other->n_push; k++)
            if (other->push[k].key == key)
                return true;
    }
    return false;
}

/* The receiver decides which way a tensor comes. */
static enum stepaf_proto choose(const struct stepaf_ctx *ctx, const struct stepaf_mailbox *mailbox,
                                bool shared)
{
    bool copied = ctx->env.cuda_engine == STEPAF_ENV_CUDA_ENGINE_ce;

    if (mailbox->bytes <= STEPAF_HEAD_DATA)
        return STEPAF_PROTO_INLINE;
    if (mailbox->in_host)
        return copied ? STEPAF_PROTO_BCOPY : STEPAF_PROTO_CHUNKS;
    if (mailbox->bytes <= STEPAF_PIECES_MAX && !copied)
        return STEPAF_PROTO_LL;
    bool is_mapped = mailbox->region && mailbox->region->mem.kind == STEPAF_MEM_CUDA &&
                     mailbox->region->shareable;
    return is_mapped && !shared ? STEPAF_PROTO_ZCOPY : STEPAF_PROTO_BCOPY;
}

static uint64_t inlet_stride(const struct stepaf_mailbox *mailbox)
{
    uint64_t after = 0;

    if (mailbox->proxied)
        return 0;
    if (mailbox->proto == STEPAF_PROTO_LL)
        after = stepaf_piece_groups(mailbox->bytes) * STEPAF_GROUP_BYTES;
    else if (mailbox->proto == STEPAF_PROTO_BCOPY)
        after = mailbox->bytes;
    else if (mailbox->proto == STEPAF_PROTO_CHUNKS)
        after = stepaf_chunks_room(mailbox->bytes);
    return stepaf_round_up(STEPAF_HEAD_BYTES + after, ALIGN);
}

/* Where tensor @a i of peer @a p comes to. */
static stepaf_status_t lay_one(struct stepaf_stream *stream, uint32_t p, uint32_t i,
                               struct stepaf_mailbox *mailbox)
{
    const struct stepaf_plan_obj *plan = stream->plan;
    struct stepaf_ctx *ctx = plan->ctx;
    bool attention = stepaf_is_attention(ctx);
    stepaf_status_t status;
    const struct stepaf_key *key =
        attention ? plan->pull[p * plan->n_pull + i].key : plan->push[i].key;

    mailbox->bytes = attention ? plan->pull[p * plan->n_pull + i].bytes : key->max_bytes;
    mailbox->pitch = key->max_bytes;
    mailbox->data = attention ? plan->pull[p * plan->n_pull + i].data : stepaf_key_slice(key, p);
    mailbox->region = NULL;
    mailbox->copied = false;
    if (mailbox->bytes) {
        mailbox->region = stepaf_region_find(ctx, mailbox->data, mailbox->bytes);
        if (!mailbox->region)
            return stepaf_error_set_peer(
                STEPAF_ERR_UNREGISTERED, STEPAF_PHASE_COMMIT, ctx->peers[p].who,
                "key %llu has no registered memory for " STEPAF_WHO_FORMAT,
                (unsigned long long)key->id, STEPAF_WHO_ARGS(ctx->peers[p].who));
    }
    status = mailbox->region ? stepaf_region_pin(ctx, mailbox->region) : STEPAF_OK;
    mailbox->proxied = stepaf_peer_proxied(ctx, p);
    mailbox->in_host = stepaf_stream_in_host(ctx, p);
    if (mailbox->proxied && stream->any)
        return stepaf_error_set_peer(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_COMMIT, ctx->peers[p].who,
                                     "stream plan %u is to take any batch, but " STEPAF_WHO_FORMAT
                                     " is proxied, which such plans are not",
                                     plan->index, STEPAF_WHO_ARGS(ctx->peers[p].who));
    if (!mailbox->proxied)
        mailbox->proto = (uint8_t)choose(ctx, mailbox, !attention && is_shared(plan, key));
    else if (attention ? stepaf_proxy_is_in_place(ctx, p, mailbox->region)
                       : stepaf_proxy_receives_in_place(ctx, p, key))
        mailbox->proto = STEPAF_PROTO_ZCOPY;
    else
        mailbox->proto = STEPAF_PROTO_BCOPY;
    return status;
}

/* Lay out a plan's mailboxes behind those of others. */
static stepaf_status_t lay_out_mailboxes(struct stepaf_stream *stream,
                                         struct stepaf_streams *streams)
{
    uint32_t n_peers = stream->plan->ctx->n_peers;

    stream->counts = stream->any != NULL;
    for (uint32_t at = 0; at < n_peers * stream->n_in; at++) {
        struct stepaf_mailbox *mailbox = &stream->mailboxes[at];
        stepaf_status_t status = lay_one(stream, at / stream->n_in, at % stream->n_in, mailbox);
        if (status)
            return status;
        uint64_t stride = inlet_stride(mailbox);
        if (stride > UINT32_MAX)
            return stepaf_error_set(
                STEPAF_ERR_LIMIT, STEPAF_PHASE_COMMIT,
                "a tensor of %u bytes is too large to be kept in a mailbox, and "
                "its memory cannot be shared between processes, or plans share "
                "it",
                mailbox->bytes);
        uint64_t *end =
            mailbox->in_host ? &streams->host[at / stream->n_in].bytes : &streams->mailbox_bytes;
        mailbox->stride = (uint32_t)stride;
        mailbox->offset = *end;
        *end += stride * stream->plan->depth;
        stream->counts = stream->counts || mailbox->proto == STEPAF_PROTO_CHUNKS;
    }
    return STEPAF_OK;
}

/* ---- control memory: failed; what has landed, slot by slot; then for each launch of each slot counts, and
 * done of those that send ---- */

static uint64_t counts_bytes(void)
{
    return stepaf_round_up((STEPAF_FLOW_BLOCKS + 1) * sizeof(uint32_t), ALIGN);
}

/* Those who unpack count only where they do not know whose batch it is, or look for stamps. */
static uint64_t receive_counts_bytes(const struct stepaf_stream *stream)
{
    return stream->counts ? counts_bytes() : ALIGN;
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
    uint64_t slot = landed_bytes(stream) + stream->n_send * (counts_bytes() + done_bytes()) +
                    stream->n_receive * receive_counts_bytes(stream);

    return ALIGN + stream->plan->depth * slot + stepaf_stream_guard_bytes(stream) +
           (stream->any ? stepaf_any_control_bytes(stream) : 0);
}

/* Memory for what was laid out. */
static stepaf_status_t allocate_streams(struct stepaf_ctx *ctx, struct stepaf_streams *streams)
{
    stepaf_status_t status;

    streams->mailbox_bytes = streams->mailbox_bytes ? streams->mailbox_bytes : ALIGN;
    streams->failed = calloc(ctx->tables.plans.n, sizeof(*streams->failed));
    if (!streams->failed)
        return stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    status =
        stepaf_gpu_alloc(ctx->gpu.device, streams->mailbox_bytes, (void **)&streams->mailboxes);
    if (!status)
        status = stepaf_streams_make_host(ctx, streams);
    if (!status)
        status =
            stepaf_gpu_alloc(ctx->gpu.device, streams->control_bytes, (void **)&streams->control);
    if (!status)
        status = stepaf_gpu_alloc_host(ctx->gpu.device,
                                       ctx->tables.plans.n * sizeof(streams->watches[0]),
                                       (void **)&streams->watches);
    if (!status)
        streams->n_watches = ctx->tables.plans.n;
    return status;
}

stepaf_status_t stepaf_streams_prepare(struct stepaf_ctx *ctx)
{
    bool any = stepaf_stream_after(ctx, NULL) != NULL;
    stepaf_status_t status = STEPAF_OK;
    struct stepaf_streams *streams;

    ctx->gpu.asks = false;
    if (!any && !ctx->gpu.streams)
        return STEPAF_OK;
    status = stepaf_proxies_link(ctx);
    if (status)
        return status;
    streams = calloc(1, sizeof(*streams));
    if (streams)
        streams->host = calloc(ctx->n_peers + 1, sizeof(*streams->host));
    if (!streams || !streams->host)
        status = stepaf_error_no_memory(STEPAF_PHASE_COMMIT);
    for (uint32_t i = 0; i < ctx->tables.plans.n && !status; i++) {
        const struct stepaf_plan_obj *plan = stepaf_table_get(&ctx->tables.plans, i);
        if (!plan || !plan->stream)
            continue;
        status = lay_out_mailboxes(plan->stream, streams);
        streams->control_bytes += stepaf_stream_control_bytes(plan->stream);
    }
    if (status) {
        if (streams)
            free(streams->host);
        free(streams);
        return status;
    }
    streams->before = ctx->gpu.streams;
    ctx->gpu.streams = streams;
    status = stepaf_proxies_prepare(ctx);
    if (!status && any)
        status = stepaf_streams_prepare_reach(ctx);
    if (!status && any)
        status = allocate_streams(ctx, streams);
    return status || !any ? status : stepaf_streams_advertise(ctx);
}

/* ---- flows ---- */

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

/* Where a lane's source lies: of slot @a slot. */
static void set_source(const struct stepaf_stream *stream, uint32_t p, uint32_t i, uint8_t slot,
                       struct stepaf_kernel_tensor *lane)
{
    const struct stepaf_plan_obj *plan = stream->plan;

    if (stepaf_is_attention(plan->ctx)) {
        lane->data = plan->push[i].data;
        lane->bytes = plan->push[i].bytes;
    } else {
        const struct stepaf_pull *pull = &plan->pull[p * plan->n_pull + i];
        lane->data = pull->data + (size_t)slot * pull->key->max_bytes;
        lane->bytes = pull->bytes;
    }
}

/* Where that is. */
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

/* A copy engine is better for what is large, or for all that is not sent by pieces. */
bool stepaf_stream_is_copied(uint32_t engine, uint8_t proto, uint32_t planned)
{
    if (proto != STEPAF_PROTO_ZCOPY && proto != STEPAF_PROTO_BCOPY)
        return false;
    if (engine == STEPAF_ENV_CUDA_ENGINE_auto)
        return planned >= COPY_MIN;
    return engine == STEPAF_ENV_CUDA_ENGINE_ce;
}

/* Say in each lane where TOLD_ALL comes to: of a direct peer's, the last that copy engines write. A
 * proxied peer's heads are the host's, which looks at each. */
static void set_leaders(const struct stepaf_ctx *ctx, struct stepaf_kernel_args *args)
{
    const struct stepaf_kernel_tensor *leader = NULL;

    for (uint32_t i = args->n_lanes; i-- > 0;) {
        struct stepaf_kernel_tensor *lane = &args->lanes[i];
        if (!lane->copied)
            continue;
        if (!leader || leader->peer != lane->peer || stepaf_peer_proxied(ctx, lane->peer))
            leader = lane;
        lane->copied = (uint8_t)(1 + (leader - args->lanes));
    }
}

static void compile_send(const struct stepaf_stream *stream,
                         const struct stepaf_stream_dst *outlets, uint32_t first, uint32_t n,
                         struct stepaf_launch *launch)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;
    struct stepaf_kernel_args *args = &launch->args;

    for (uint32_t at = first; at < first + n; at++) {
        const struct stepaf_stream_dst *outlet = &outlets[at];
        struct stepaf_kernel_tensor *lane = &args->lanes[args->n_lanes++];
        lane->peer = (uint16_t)(at / stream->n_out);
        launch->sources[at - first] = source_region(stream, lane->peer, at % stream->n_out);
        launch->places[at - first] = outlet->allocation;
        lane->proto = outlet->proto;
        lane->head = outlet->mailbox + (size_t)args->slot * outlet->stride;
        lane->body = outlet->place ? outlet->place + (size_t)args->slot * outlet->pitch
                                   : lane->head + STEPAF_HEAD_BYTES;
        set_source(stream, lane->peer, at % stream->n_out, args->slot, lane);
        lane->copied =
            stepaf_stream_is_copied((uint32_t)ctx->env.cuda_engine, lane->proto, lane->bytes) &&
            stepaf_stream_copies(ctx, lane->peer, launch->sources[at - first]);
        launch->copies = launch->copies || lane->copied;
        if (lane->proto == STEPAF_PROTO_RDMA)
            stepaf_stream_guard_lane(lane, stream->guarded);
        if (lane->proto == STEPAF_PROTO_CHUNKS) {
            lane->chunk = stepaf_chunk_bytes(outlet->bytes);
            launch->chunks = true;
        }
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
        struct stepaf_kernel_tensor *lane = &args->lanes[args->n_lanes++];
        lane->peer = (uint16_t)(at / stream->n_in);
        lane->proto = mailbox->proto;
        lane->head = mailbox->in_host ? ctx->gpu.streams->host[lane->peer].mem.base
                                      : ctx->gpu.streams->mailboxes;
        lane->head += mailbox->offset + (size_t)args->slot * mailbox->stride;
        lane->body = lane->head + STEPAF_HEAD_BYTES;
        if (mailbox->proxied) {
            const struct stepaf_proxy_buf *its = &stream->proxy->in[at];
            lane->head = its->heads + (size_t)args->slot * STEPAF_HEAD_BYTES;
            lane->body = its->data + (size_t)args->slot * its->pitch;
        }
        lane->data = mailbox->data + (size_t)args->slot * mailbox->pitch;
        lane->bytes = mailbox->bytes;
        lane->planned = mailbox->planned;
        lane->copied = mailbox->copied;
        if (lane->proto == STEPAF_PROTO_CHUNKS) {
            lane->chunk = stepaf_chunk_bytes(mailbox->bytes);
            launch->chunks = true;
        }
    }
    set_leaders(ctx, args);
    launch->threads = stepaf_stream_set_gate(args);
    launch->blocks = stepaf_stream_distribute(args, false, stepaf_stream_blocks(ctx));
    args->gate_ends = !launch->blocks;
    stepaf_stream_touch(args);
}

static uint32_t min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void stepaf_stream_compile(struct stepaf_stream *stream, const struct stepaf_stream_dst *outlets,
                           uint8_t *control)
{
    uint32_t n_out = stream->plan->ctx->n_peers * stream->n_out;
    uint32_t n_in = stream->plan->ctx->n_peers * stream->n_in;
    uint32_t each_out = stepaf_launch_peers(stream->n_out) * stream->n_out;
    uint32_t each_in = stepaf_launch_peers(stream->n_in) * stream->n_in;
    uint8_t *landed = control + ALIGN, *at = landed + stream->plan->depth * landed_bytes(stream);
    struct stepaf_launch *launch = stream->send;

    stream->guarded = stepaf_stream_is_guarded(stream);
    for (uint8_t slot = 0; slot < stream->plan->depth; slot++)
        for (uint32_t first = 0; first < n_out; first += each_out, launch++) {
            *launch = (struct stepaf_launch){.args = kernel_args_begin(stream, slot, control)};
            launch->args.counts = (uint32_t *)at;
            launch->args.done = (uint32_t *)(at + counts_bytes());
            at += counts_bytes() + done_bytes();
            compile_send(stream, outlets, first, min(each_out, n_out - first), launch);
        }
    launch = stream->receive;
    stream->unpacks = false;
    for (uint8_t slot = 0; slot < stream->plan->depth; slot++, landed += landed_bytes(stream))
        for (uint32_t first = 0; first < n_in; first += each_in, launch++) {
            *launch = (struct stepaf_launch){.args = kernel_args_begin(stream, slot, control)};
            launch->args.counts = (uint32_t *)at;
            launch->args.landed = (uint32_t *)landed + first;
            at += receive_counts_bytes(stream);
            compile_receive(stream, first, min(each_in, n_in - first), launch);
            stream->unpacks = stream->unpacks || launch->blocks;
        }
    for (uint8_t slot = 0; slot < stream->plan->depth; slot++) {
        struct stepaf_kernel_args args = kernel_args_begin(stream, slot, control);
        at = stepaf_stream_guard_compile(stream, &args, at);
    }
}
