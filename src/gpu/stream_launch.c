/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans in use: enqueue the kernels and copies of an operation. */
#include <string.h>

#include "core/op.h"
#include "core/plan.h"
#include "core/region.h"
#include "gpu/proxy.h"
#include "gpu/stream_some.h"
#include "gpu/times.h"

/* Put the size and address of tensor @a i into a copy of its launch. */
static stepaf_status_t change_tensor(const struct stepaf_stream *stream, uint32_t i,
                                     const stepaf_tensor_t *tensor, struct stepaf_launch *launches)
{
    const struct stepaf_plan_obj *plan = stream->plan;
    uint32_t n = stream->n_out, at;
    struct stepaf_launch *launch = stepaf_launch_of(launches, n, i / n, i % n, &at);
    struct stepaf_kernel_tensor *kernel_tensor = &launch->args.tensors[at];
    const struct stepaf_key *key =
        stepaf_is_attention(plan->ctx) ? plan->push[i % n].key : plan->pull[i].key;

    if (tensor->key != key->id)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                "tensor %u has key %llu, but the plan has %llu", i,
                                (unsigned long long)tensor->key, (unsigned long long)key->id);
    if (tensor->bytes > kernel_tensor->bytes)
        return stepaf_error_set(STEPAF_ERR_SIZE, STEPAF_PHASE_START,
                                "tensor %u: %zu bytes, but the plan has %u", i, tensor->bytes,
                                kernel_tensor->bytes);
    kernel_tensor->bytes = (uint32_t)tensor->bytes;
    if (!tensor->data || !tensor->bytes)
        return STEPAF_OK;
    const struct stepaf_region *region = stepaf_region_find(plan->ctx, tensor->data, tensor->bytes);
    if (!region || (region->mem.kind != STEPAF_MEM_CUDA && !region->pinned))
        return stepaf_error_set(STEPAF_ERR_UNREGISTERED, STEPAF_PHASE_START,
                                "tensor %u: its %zu bytes are neither in registered GPU memory "
                                "nor in host memory that a stream plan names",
                                i, tensor->bytes);
    if (kernel_tensor->proto == STEPAF_PROTO_RDMA && !stepaf_region_is_linked(plan->ctx, region))
        return stepaf_region_refuse(plan->ctx, tensor->data, tensor->bytes, STEPAF_PHASE_START,
                                    "tensor", (int)i);
    if (kernel_tensor->copied && !stepaf_stream_copies(plan->ctx, kernel_tensor->peer, region))
        return stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_START,
                                "tensor %u is in host memory, but the plan has GPU memory, which a "
                                "copy engine copies for a proxied peer",
                                i);
    kernel_tensor->data = tensor->data;
    launch->sources[at] = region;
    return STEPAF_OK;
}

/* Put the sizes and addresses of one operation into a copy of its launches. */
static stepaf_status_t change(const struct stepaf_stream *stream, const stepaf_tensor_t *tensors,
                              int n_tensors, struct stepaf_launch *launches)
{
    const struct stepaf_plan_obj *plan = stream->plan;
    uint32_t n = stream->n_out, all = plan->ctx->n_peers * n;
    bool each = plan->scatter || !stepaf_is_attention(plan->ctx);
    stepaf_status_t status = STEPAF_OK;

    if (n_tensors < 0 || (uint32_t)n_tensors != (each ? all : n))
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                "%d tensors given where the plan has %u", n_tensors,
                                each ? all : n);
    for (uint32_t i = 0; i < all && !status; i++)
        status = change_tensor(stream, i, &tensors[each ? i : i % n], launches);
    for (uint32_t k = 0; k < stream->launches.n_send && !status; k++)
        stepaf_stream_touch(&launches[k].args);
    return status;
}

/* Return whether tensor @a next continues at both sides where tensor @a i and those behind it, of
 * @a bytes together, end. If so, and within the same allocations, one copy does for all; CUDA
 * copies nothing across allocations. */
static bool goes_on(const struct stepaf_launch *launch, uint32_t i, uint32_t next, size_t bytes)
{
    const struct stepaf_kernel_tensor *tensor = &launch->args.tensors[i],
                                      *other = &launch->args.tensors[next];

    return other->copied && other->peer == tensor->peer && other->data == tensor->data + bytes &&
           other->body == tensor->body + bytes && launch->sources[next] == launch->sources[i] &&
           launch->places[next] == launch->places[i];
}

/* Return whether everything that copy engines write is as large as planned. */
static bool as_planned(const struct stepaf_kernel_args *args,
                       const struct stepaf_kernel_args *planned)
{
    for (uint32_t i = 0; i < args->n_tensors; i++)
        if (args->tensors[i].copied && args->tensors[i].bytes != planned->tensors[i].bytes)
            return false;
    return true;
}

/* Announce what copy engines have written, without a kernel. */
static stepaf_status_t tell(struct stepaf_gpu *gpu, const struct stepaf_kernel_args *args, bool all,
                            void *cuda_stream)
{
    struct stepaf_gpu_word words[STEPAF_GPU_WORDS];
    uint32_t n_words = 0;

    for (uint32_t i = 0; i < args->n_tensors; i++) {
        const struct stepaf_kernel_tensor *tensor = &args->tensors[i];
        bool leads = tensor->copied == i + 1;
        if (tensor->copied && (leads || !all))
            words[n_words++] = (struct stepaf_gpu_word){
                (uint64_t *)(tensor->head + STEPAF_HEAD_TELLS) + 1,
                (uint64_t)tensor->bytes << 32 | (all ? STEPAF_TOLD_ALL : STEPAF_TOLD),
            };
    }
    return stepaf_gpu_store(gpu, words, n_words, cuda_stream);
}

/* Enqueue the copies of the copy engines. */
static stepaf_status_t copy(struct stepaf_gpu *gpu, const struct stepaf_launch *launch,
                            const struct stepaf_kernel_args *planned, void *cuda_stream)
{
    const struct stepaf_kernel_args *args = &launch->args;
    stepaf_status_t status = STEPAF_OK;

    for (uint32_t i = 0, next; i < args->n_tensors && !status; i = next) {
        const struct stepaf_kernel_tensor *tensor = &args->tensors[i];
        size_t bytes = tensor->bytes;
        next = i + 1;
        if (!tensor->copied)
            continue;
        for (; next < args->n_tensors && goes_on(launch, i, next, bytes); next++)
            bytes += args->tensors[next].bytes;
        if (bytes)
            status = stepaf_gpu_copy(gpu, tensor->body, tensor->data, bytes, cuda_stream);
    }
    return status ? status
                  : tell(gpu, args, !launch->told_each && as_planned(args, planned), cuda_stream);
}

/* ---- without the lock ---- */

/* What is enqueued besides the launches. */
struct marks {
    void *const *behind;  /* two events before the launches; NULL: none */
    void **event;         /* recorded behind the launches; NULL: none */
    bool proxy;           /* the launches end the operation, and peers are proxied */
    bool marked;          /* so the proxy has one mark more */
    bool begun;           /* some of it is enqueued */
    const uint32_t *name; /* of the operation, for timestamps; NULL: no request */
};

/* Record an event, which is made at its first use. */
static stepaf_status_t record(struct stepaf_gpu *gpu, void **event_p, void *cuda_stream)
{
    stepaf_status_t status = STEPAF_OK;

    if (!*event_p)
        status = stepaf_gpu_event_create(gpu, event_p);
    return status ? status : stepaf_gpu_event_record(gpu, *event_p, cuda_stream);
}

static stepaf_status_t mark_legs(struct stepaf_stream *stream, void *cuda_stream,
                                 struct marks *marks)
{
    stepaf_status_t status = STEPAF_OK;

    if (marks->event)
        status = record(stream->plan->ctx->gpu.device, marks->event, cuda_stream);
    if (!status && marks->proxy)
        status = stepaf_proxy_mark(stream->proxy, cuda_stream, &marks->marked);
    return status;
}

/* Kernels first: a kernel between two copies takes longer than either. */
static stepaf_status_t send_legs(struct stepaf_stream *stream, const struct stepaf_launch *launches,
                                 const struct stepaf_launch *planned, bool guarded,
                                 void *cuda_stream, struct marks *marks)
{
    struct stepaf_gpu *gpu = stream->plan->ctx->gpu.device;
    stepaf_status_t status =
        stepaf_times_note(stream, STEPAF_TIMESTAMP_SEND_BEGAN, planned->args.slot, marks->name,
                          cuda_stream, &marks->begun);
    bool first = true;

    if (stream->some && !status) {
        status = stepaf_some_settle(stream, planned->args.slot, cuda_stream, &marks->begun);
        first = false;
    }
    for (uint32_t k = 0; k < stream->launches.n_send && !status; k++) {
        if (!launches[k].blocks)
            continue;
        /* Only the first may begin early. The others would wait in the place of other kernels'
         * blocks. */
        status = stepaf_gpu_launch(gpu, stream->launches.kernels->send[launches[k].chunks],
                                   &launches[k].args, launches[k].blocks, STEPAF_WARP, first,
                                   cuda_stream);
        marks->begun = marks->begun || !status;
        first = false;
    }
    for (uint32_t k = 0; k < stream->launches.n_send && !status; k++) {
        if (!launches[k].copies)
            continue;
        marks->begun = true;
        status = copy(gpu, &launches[k], &planned[k].args, cuda_stream);
    }
    if (guarded && !status)
        status = stepaf_stream_guard_launch(stream, planned->args.slot, cuda_stream);
    if (!status)
        status = stepaf_times_note(stream, STEPAF_TIMESTAMP_SEND_OVER, planned->args.slot, NULL,
                                   cuda_stream, &marks->begun);
    return status ? status : mark_legs(stream, cuda_stream, marks);
}

static stepaf_status_t receive_legs(struct stepaf_stream *stream,
                                    const struct stepaf_launch *launches, void *cuda_stream,
                                    struct marks *marks)
{
    struct stepaf_gpu *gpu = stream->plan->ctx->gpu.device;
    stepaf_status_t status = STEPAF_OK;

    for (int i = 0; marks->behind && i < 2 && !status; i++)
        if (marks->behind[i])
            status = stepaf_gpu_event_await(gpu, marks->behind[i], cuda_stream);
    for (uint32_t k = 0; k < stream->launches.n_receive && !status; k++) {
        status =
            stepaf_times_note_arrivals(stream, launches->args.slot, k, cuda_stream, &marks->begun);
        if (status || !launches[k].threads) /* all peers of the launch are lost */
            continue;
        status = stepaf_gpu_launch(gpu, stream->launches.kernels->gate, &launches[k].args, 1,
                                   launches[k].threads, false, cuda_stream);
        marks->begun = marks->begun || !status;
        if (!status && launches[k].blocks)
            status = stepaf_gpu_launch(gpu, stream->launches.kernels->unpack[launches[k].chunks],
                                       &launches[k].args, launches[k].blocks, STEPAF_WARP, true,
                                       cuda_stream);
    }
    if (!status)
        status = stepaf_times_note(stream, STEPAF_TIMESTAMP_WAIT_OVER, launches->args.slot, NULL,
                                   cuda_stream, &marks->begun);
    return status ? status : mark_legs(stream, cuda_stream, marks);
}

/* ---- with the lock ---- */

/* Find out whether a stream is captured. It must not be if the operation has a request (@a asked),
 * which stands for what is enqueued now. */
static stepaf_status_t check_capture(struct stepaf_gpu *gpu, void *cuda_stream, bool asked,
                                     bool *capturing_p)
{
    stepaf_status_t status = stepaf_gpu_capturing(gpu, cuda_stream, capturing_p);

    if (!status && *capturing_p && asked)
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_START,
                                  "the operation has a request, but the stream is being captured: "
                                  "replays have no requests");
    return status;
}

/* Make a request for the operation that was just sent and marked. */
static struct stepaf_op *make_request(struct stepaf_stream *stream, uint8_t slot)
{
    struct stepaf_plan_obj *plan = stream->plan;
    struct stepaf_op *op = &plan->ops[slot];

    op->generation = stepaf_table_generation(&plan->ctx->tables.ops);
    op->seq = plan->seq;
    op->retired = false;
    op->failed_peer = -1;
    op->answers.pending = plan->ctx->n_peers;
    op->answers.spare = stream->some ? stepaf_some_spare(stream) : 0;
    for (uint32_t p = 0; p < plan->ctx->n_peers; p++)
        op->op_peers[p].state =
            plan->ctx->peers[p].lost ? STEPAF_OP_PEER_LOST : STEPAF_OP_PEER_WAITING;
    for (uint32_t i = 0; i < plan->ctx->n_peers * plan->n_pull; i++)
        op->pull_bytes[i] = plan->ctx->peers[i / plan->n_pull].lost ? 0 : plan->pull[i].bytes;
    atomic_store_explicit(&op->status, STEPAF_INPROGRESS, memory_order_release);
    plan->ctx->n_polled += !(stream->requests & 1u << slot);
    plan->ctx->gpu.n_requests += !(stream->requests & 1u << slot);
    stream->requests |= 1u << slot;
    stream->awaited &= ~(1u << slot);
    return op;
}

stepaf_status_t stepaf_stream_send(struct stepaf_stream *stream, const stepaf_tensor_t *tensors,
                                   int n_tensors, void *cuda_stream, struct stepaf_op **op_p)
{
    struct stepaf_plan_obj *plan = stream->plan;
    uint8_t slot = (uint8_t)(stream->n_sent % plan->depth);
    const struct stepaf_launch *planned = &stream->launches.send[slot * stream->launches.n_send],
                               *launches = planned;
    struct marks marks = {.event = op_p ? &stream->sent[slot] : NULL,
                          .name = op_p ? &plan->seq : NULL,
                          .proxy = stream->proxy && !stepaf_is_attention(plan->ctx)};
    stepaf_status_t status = stepaf_stream_check(stream);
    bool capturing = false, guarded = stream->launches.guarded;

    if (!status && tensors) {
        launches = stream->launches.changed;
        memcpy(stream->launches.changed, planned, stream->launches.n_send * sizeof(*planned));
        status = change(stream, tensors, n_tensors, stream->launches.changed);
        guarded = stepaf_stream_guard_change(stream, planned, stream->launches.changed);
    }
    if (!status && stream->proxy && stepaf_is_attention(plan->ctx))
        status = stepaf_proxy_check_room(stream->proxy);
    if (status)
        return status;
    stepaf_stream_take_out(stream);
    if (op_p)
        status = check_capture(plan->ctx->gpu.device, cuda_stream, true, &capturing);
    if (!status)
        status = send_legs(stream, launches, planned, guarded, cuda_stream, &marks);
    stepaf_stream_put_back(stream);
    if (status)
        return marks.begun ? stepaf_stream_break(stream, status) : status;
    stream->n_sent++;
    if (marks.marked)
        stream->proxy->n_marked++;
    if (op_p)
        *op_p = make_request(stream, slot);
    plan->seq++;
    return STEPAF_OK;
}

stepaf_status_t stepaf_stream_receive(struct stepaf_stream *stream, void *cuda_stream,
                                      void *const *behind)
{
    struct stepaf_plan_obj *plan = stream->plan;
    uint8_t slot = (uint8_t)(stream->n_received % plan->depth);
    bool asked = stream->requests & ~stream->awaited & 1u << slot; /* else: of an earlier one */
    bool capturing = false;
    struct marks marks = {.behind = behind,
                          .event = asked || behind ? &stream->arrived[slot] : NULL,
                          .proxy = stream->proxy && stepaf_is_attention(plan->ctx)};
    stepaf_status_t status = stepaf_stream_check(stream);

    if (!status && stream->proxy && !stepaf_is_attention(plan->ctx))
        status = stepaf_proxy_check_room(stream->proxy);
    if (status)
        return status;
    bool keeps =
        stream->launches.sees_graphs && !plan->ctx->gpu.streams->captured; /* the first time */
    stepaf_stream_take_out(stream);
    if (keeps || asked)
        status = check_capture(plan->ctx->gpu.device, cuda_stream, asked, &capturing);
    if (!status)
        status = receive_legs(stream, &stream->launches.receive[slot * stream->launches.n_receive],
                              cuda_stream, &marks);
    stepaf_stream_put_back(stream);
    if (keeps && capturing && marks.begun)
        plan->ctx->gpu.streams->captured = true;
    if (status)
        return marks.begun ? stepaf_stream_break(stream, status) : status;
    stream->n_received++;
    if (marks.marked)
        stream->proxy->n_marked++;
    if (asked)
        stream->awaited |= 1u << slot;
    if (behind)
        stream->claimed |= 1u << slot;
    return STEPAF_OK;
}
