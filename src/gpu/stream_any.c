/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/stream_any.h"
#include "core/key.h"
#include "core/plan.h"
#include "core/region.h"
#include "gpu/times.h"

#include <stdlib.h>

#include "base/round.h"

_Static_assert((int)STEPAF_ANY_TENSORS == (int)STEPAF_MAX_TENSORS, "all of a peer's");

enum { ALIGN = 512, OCTET = 8 /* threads of the gate that look at a head */ };

stepaf_status_t stepaf_any_make(struct stepaf_stream *stream)
{
    if (stream->launches.n_send > 1 || stream->launches.n_receive > 1)
        return stepaf_error_set(STEPAF_ERR_LIMIT, STEPAF_PHASE_NONE,
                                "a plan that takes any batch carries at most %d tensors each way, "
                                "over all peers",
                                STEPAF_KERNEL_TENSORS);
    stream->any = calloc(1, sizeof(*stream->any));
    if (!stream->any)
        return stepaf_error_no_memory(STEPAF_PHASE_NONE);
    return STEPAF_OK;
}

uint64_t stepaf_any_limit(const struct stepaf_stream *stream)
{
    return (uint64_t)stream->plan->depth * stream->plan->ctx->n_peers;
}

/* ---- control memory: outgoing tensors, incoming tensors; ring; next; origin ---- */

/* The ring has twice as many entries as batches can be received and not answered. Blocks of an
 * answer that have nothing to send may look for their entry only after the answer has reached the
 * worker, whose next batch then has an entry of its own. Before an entry is used again, a later
 * answer has begun, and these blocks have ended. */
static uint32_t ring_entries(const struct stepaf_stream *stream)
{
    /* A power of two, so that a count that wraps continues in its place. */
    return (uint32_t)stepaf_round_up_power(2 * stepaf_any_limit(stream));
}

static uint64_t tensors_bytes(const struct stepaf_stream *stream, uint32_t n_each)
{
    return stepaf_round_up(
        (uint64_t)stream->plan->ctx->n_peers * n_each * sizeof(struct stepaf_any_tensor), ALIGN);
}

static uint64_t ring_bytes(const struct stepaf_stream *stream)
{
    return stepaf_round_up(ring_entries(stream) * sizeof(struct stepaf_any_entry), ALIGN);
}

static uint64_t next_bytes(const struct stepaf_stream *stream)
{
    return stepaf_round_up((stream->plan->ctx->n_peers + 1ull) * sizeof(struct stepaf_any_next),
                           ALIGN);
}

uint64_t stepaf_any_control_bytes(const struct stepaf_stream *stream)
{
    return tensors_bytes(stream, stream->n_out) + tensors_bytes(stream, stream->n_in) +
           ring_bytes(stream) + next_bytes(stream) + ALIGN;
}

/* ---- kernel args ---- */

/* Write the tensors of all slots, from the kernel args of the first and the second. One launch has
 * all tensors. */
static stepaf_status_t write_tensors(const struct stepaf_stream *stream,
                                     const struct stepaf_launch *slots, bool sending,
                                     uint8_t *control)
{
    struct stepaf_any_tensor tensors[STEPAF_KERNEL_TENSORS];
    uint32_t n_tensors = slots[0].args.n_tensors;

    for (uint32_t i = 0; i < n_tensors; i++) {
        const struct stepaf_kernel_tensor *one = &slots[0].args.tensors[i], *other = one;
        if (stream->plan->depth > 1)
            other = &slots[1].args.tensors[i];
        tensors[i] = (struct stepaf_any_tensor){
            .tensor = *one,
            .head_stride = (uint32_t)(other->head - one->head),
            .body_stride = (uint32_t)(other->body - one->body),
            .data_stride = (uint32_t)((uintptr_t)other->data - (uintptr_t)one->data),
        };
        if (sending)
            tensors[i].tensor.copied = 0; /* a copy engine would need the address from the host */
    }
    return stepaf_gpu_write(stream->plan->ctx->gpu.device, control, tensors,
                            n_tensors * sizeof(tensors[0]));
}

static bool is_unpacked(const struct stepaf_kernel_tensor *tensor)
{
    return tensor->proto == STEPAF_PROTO_LL || tensor->proto == STEPAF_PROTO_BCOPY ||
           tensor->proto == STEPAF_PROTO_CHUNKS;
}

/* Return whether one peer's tensor takes more blocks than another peer's. */
static bool is_wider(const struct stepaf_kernel_tensor *tensor,
                     const struct stepaf_kernel_tensor *than, bool sending)
{
    if (!sending && is_unpacked(tensor) != is_unpacked(than))
        return is_unpacked(tensor);
    return tensor->bytes > than->bytes;
}

/* Share out blocks over the tensors of one peer, the same for any peer: as the widest tensors
 * need. */
static uint32_t share_out(const struct stepaf_stream *stream, const struct stepaf_kernel_args *slot,
                          bool sending, struct stepaf_any_args *args)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;
    struct stepaf_kernel_args widest = {.n_tensors = args->n_each};
    uint32_t limit = stepaf_stream_blocks(ctx);

    for (uint32_t i = 0; i < slot->n_tensors; i++) {
        struct stepaf_kernel_tensor *tensor = &widest.tensors[i % args->n_each];
        if (!slot->tensors[i].head)
            continue; /* the peer is lost */
        if (!tensor->head || is_wider(&slot->tensors[i], tensor, sending))
            *tensor = slot->tensors[i];
        tensor->copied = 0;
    }
    if (!sending) {
        uint32_t threads = (uint32_t)stepaf_round_up(slot->n_tensors * OCTET, STEPAF_WARP);
        stream->any->gate_threads = stepaf_stream_set_gate(&widest, true);
        if (stream->any->gate_threads < threads)
            stream->any->gate_threads = threads;
    }
    uint32_t blocks = stepaf_stream_distribute(&widest, sending, limit);
    args->gate_takes = widest.gate_takes;
    args->gate_ends = !blocks;
    for (uint32_t i = 0; i < args->n_each; i++)
        args->shares[i] = (struct stepaf_any_share){
            .bytes = UINT32_MAX,
            .first = widest.tensors[i].first,
            .n = widest.tensors[i].n,
        };
    return blocks;
}

static bool slots_are_aligned(const struct stepaf_stream *stream, const struct stepaf_launch *slots)
{
    bool aligned = true;

    for (uint32_t s = 0; s < stream->plan->depth; s++)
        aligned = aligned && slots[s].args.aligned;
    return aligned;
}

static struct stepaf_any_args any_args_begin(const struct stepaf_stream *stream,
                                             const struct stepaf_launch *slots, uint32_t n_each)
{
    const struct stepaf_kernel_args *first = &slots[0].args;

    return (struct stepaf_any_args){
        .counts = first->counts,
        .done = first->done,
        .failed = first->failed,
        .landed = first->landed,
        .watch = first->watch,
        .timeout_ns = first->timeout_ns,
        .epoch = first->epoch,
        .ring_mask = ring_entries(stream) - 1,
        .n_peers = (uint16_t)stream->plan->ctx->n_peers,
        .n_each = (uint8_t)n_each,
        .depth = stream->plan->depth,
        .aligned = slots_are_aligned(stream, slots),
    };
}

/* Find what an answer can hold, for any worker. */
static void find_room(struct stepaf_stream *stream)
{
    const struct stepaf_kernel_args *slot = &stream->launches.send[0].args;

    for (uint32_t i = 0; i < slot->n_tensors; i++) {
        uint32_t *room = &stream->any->room[i % stream->n_out];
        if (i < stream->n_out || slot->tensors[i].bytes < *room)
            *room = slot->tensors[i].bytes;
    }
}

stepaf_status_t stepaf_any_begin(struct stepaf_stream *stream, uint8_t *control)
{
    struct stepaf_any *any = stream->any;
    uint8_t *in = control + tensors_bytes(stream, stream->n_out);
    uint8_t *ring = in + tensors_bytes(stream, stream->n_in);
    stepaf_status_t status = write_tensors(stream, stream->launches.send, true, control);

    if (!status)
        status = write_tensors(stream, stream->launches.receive, false, in);
    if (status)
        return status;
    any->send = any_args_begin(stream, stream->launches.send, stream->n_out);
    any->receive = any_args_begin(stream, stream->launches.receive, stream->n_in);
    any->send.tensors = (struct stepaf_any_tensor *)control;
    any->receive.tensors = (struct stepaf_any_tensor *)in;
    any->send.ring = any->receive.ring = (struct stepaf_any_entry *)ring;
    any->receive.next = (struct stepaf_any_next *)(ring + ring_bytes(stream));
    any->receive.origin = (uint32_t *)(ring + ring_bytes(stream) + next_bytes(stream));
    if (stream->plan->depth > 1)
        any->receive.landed_stride = (uint32_t)(stream->launches.receive[1].args.landed -
                                                stream->launches.receive[0].args.landed);
    any->send_blocks = share_out(stream, &stream->launches.send[0].args, true, &any->send);
    any->unpack_blocks = share_out(stream, &stream->launches.receive[0].args, false, &any->receive);
    find_room(stream);
    return STEPAF_OK;
}

/* ---- enqueueing ---- */

static stepaf_status_t change_share(const struct stepaf_stream *stream, uint32_t i,
                                    const stepaf_tensor_t *tensor, struct stepaf_any_args *args)
{
    const struct stepaf_plan_obj *plan = stream->plan;
    const struct stepaf_key *key = plan->pull[i].key;
    const struct stepaf_region *region;

    if (tensor->key != key->id)
        return stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_RESPOND,
                                "tensor %u has key %llu, but the plan has %llu", i,
                                (unsigned long long)tensor->key, (unsigned long long)key->id);
    if (tensor->bytes > stream->any->room[i])
        return stepaf_error_set(
            STEPAF_ERR_SIZE, STEPAF_PHASE_RESPOND,
            "tensor %u: %zu bytes, but the plan has %u, or more for some workers", i, tensor->bytes,
            stream->any->room[i]);
    args->shares[i].bytes = (uint32_t)tensor->bytes;
    if (!tensor->data || !tensor->bytes)
        return STEPAF_OK;
    region = stepaf_region_find(plan->ctx, tensor->data, tensor->bytes);
    if (!region || (region->mem.kind != STEPAF_MEM_CUDA && !region->pinned))
        return stepaf_error_set(
            STEPAF_ERR_UNREGISTERED, STEPAF_PHASE_RESPOND,
            "tensor %u: its %zu bytes are neither in registered GPU memory nor in "
            "host memory that a stream plan names",
            i, tensor->bytes);
    args->shares[i].data = tensor->data;
    args->aligned = args->aligned && (uintptr_t)tensor->data % 16 == 0;
    return STEPAF_OK;
}

/* Without the lock. */
static stepaf_status_t send_any_legs(const struct stepaf_stream *stream,
                                     const struct stepaf_any_args *args, void *cuda_stream,
                                     bool *begun_p)
{
    enum stepaf_any_kernel kernel =
        stream->launches.send->chunks ? STEPAF_KERNEL_SEND_ANY_CHUNKS : STEPAF_KERNEL_SEND_ANY;
    stepaf_status_t status =
        stepaf_times_note(stream, STEPAF_TIMESTAMP_SEND_BEGAN, 0, NULL, cuda_stream, begun_p);

    if (status)
        return status;
    status = stepaf_gpu_launch_any(stream->plan->ctx->gpu.device, kernel, args,
                                   stream->any->send_blocks, STEPAF_WARP, true, cuda_stream);
    if (status)
        return status;
    *begun_p = true;
    return stepaf_times_note(stream, STEPAF_TIMESTAMP_SEND_OVER, 0, NULL, cuda_stream, begun_p);
}

static stepaf_status_t receive_any_legs(const struct stepaf_stream *stream, void *cuda_stream,
                                        bool *begun_p)
{
    enum stepaf_any_kernel unpack = stream->launches.receive->chunks
                                        ? STEPAF_KERNEL_UNPACK_ANY_CHUNKS
                                        : STEPAF_KERNEL_UNPACK_ANY;
    struct stepaf_gpu *gpu = stream->plan->ctx->gpu.device;
    const struct stepaf_any *any = stream->any;
    stepaf_status_t status =
        stepaf_times_note(stream, STEPAF_TIMESTAMP_WAIT_BEGAN, 0, NULL, cuda_stream, begun_p);

    if (status)
        return status;
    status = stepaf_gpu_launch_any(gpu, STEPAF_KERNEL_GATE_ANY, &any->receive, 1, any->gate_threads,
                                   false, cuda_stream);
    if (status)
        return status;
    *begun_p = true;
    if (any->unpack_blocks)
        status = stepaf_gpu_launch_any(gpu, unpack, &any->receive, any->unpack_blocks, STEPAF_WARP,
                                       true, cuda_stream);
    return status ? status
                  : stepaf_times_note(stream, STEPAF_TIMESTAMP_WAIT_OVER, 0, NULL, cuda_stream,
                                      begun_p);
}

stepaf_status_t stepaf_any_send(struct stepaf_stream *stream, const stepaf_tensor_t *tensors,
                                void *cuda_stream)
{
    const struct stepaf_any_args *args = &stream->any->send;
    struct stepaf_any_args changed;
    stepaf_status_t status = stepaf_stream_check(stream);
    bool begun = false;

    if (!status && tensors) {
        changed = *args;
        args = &changed;
        for (uint32_t i = 0; i < stream->n_out && !status; i++)
            status = change_share(stream, i, &tensors[i], &changed);
    }
    if (status)
        return status;
    stepaf_stream_take_out(stream);
    status = send_any_legs(stream, args, cuda_stream, &begun);
    stepaf_stream_put_back(stream);
    if (status)
        return begun ? stepaf_stream_break(stream, status) : status;
    stream->plan->seq++;
    stream->n_sent++;
    return STEPAF_OK;
}

stepaf_status_t stepaf_any_receive(struct stepaf_stream *stream, void *cuda_stream)
{
    stepaf_status_t status = stepaf_stream_check(stream);
    bool begun = false;

    if (status)
        return status;
    stepaf_stream_take_out(stream);
    status = receive_any_legs(stream, cuda_stream, &begun);
    stepaf_stream_put_back(stream);
    if (status)
        return begun ? stepaf_stream_break(stream, status) : status;
    stream->n_received++;
    return STEPAF_OK;
}
