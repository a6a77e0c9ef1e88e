/* SPDX-License-Identifier: Apache-2.0 */
/* The guard of sources that a NIC reads in place. A stream that has passed an operation's sends may
 * overwrite its sources, since the kernels for other peers have read theirs by then. So a gate
 * behind the sends waits until the proxy says that the NIC has read them, too. */
#include "core/plan.h"
#include "gpu/proxy.h"

enum {
    GUARD_BYTES = 512
}; /* per launch: a count, and sizes that have landed, which nobody reads */

/* Sources of planned answers need no guard: each slot has its own, and the slot comes again only
 * when the peer has what was sent. */
bool stepaf_stream_is_guarded(const struct stepaf_stream *stream)
{
    bool any = false;

    for (uint32_t p = 0; stream->proxy && p < stream->plan->ctx->n_peers; p++)
        any = any || stream->proxy->peers[p].sent;
    return any && stepaf_is_attention(stream->plan->ctx) && !stream->plan->keeps_sources;
}

void stepaf_stream_guard_tensor(struct stepaf_kernel_tensor *tensor, bool guarded)
{
    tensor->body = tensor->data; /* nothing is written there */
    tensor->guarded = guarded;
}

/* Set the peers whose heads the launch waits for, beginning with @a from. Returns the first peer of
 * the next launch. */
static uint32_t compile_launch(const struct stepaf_proxy *proxy, uint32_t n_peers, uint32_t from,
                               struct stepaf_launch *launch)
{
    struct stepaf_kernel_args *args = &launch->args;
    uint32_t p = from;

    for (; p < n_peers && args->n_tensors < STEPAF_KERNEL_TENSORS; p++)
        if (proxy->peers[p].sent)
            args->tensors[args->n_tensors++] = (struct stepaf_kernel_tensor){
                .head = proxy->peers[p].sent + (size_t)args->slot * STEPAF_HEAD_BYTES,
                .proto = STEPAF_PROTO_ZCOPY, /* nothing is left to do once its head is there */
                .peer = (uint16_t)p,
            };
    launch->threads = stepaf_stream_set_gate(args, true);
    args->gate_ends = 1;
    stepaf_stream_touch(args);
    return p;
}

uint8_t *stepaf_stream_guard_compile(struct stepaf_stream *stream,
                                     const struct stepaf_kernel_args *common, uint8_t *counts)
{
    struct stepaf_launch *launch = &stream->launches.guard[common->slot * stream->launches.n_guard];

    for (uint32_t k = 0, p = 0; k < stream->launches.n_guard;
         k++, launch++, counts += GUARD_BYTES) {
        *launch = (struct stepaf_launch){.args = *common};
        launch->args.counts = (uint32_t *)counts;
        launch->args.landed = launch->args.counts + 1;
        if (stream->proxy)
            p = compile_launch(stream->proxy, stream->plan->ctx->n_peers, p, launch);
    }
    return counts;
}

uint64_t stepaf_stream_guard_bytes(const struct stepaf_stream *stream)
{
    return (uint64_t)GUARD_BYTES * stream->plan->depth * stream->launches.n_guard;
}

bool stepaf_stream_guard_change(const struct stepaf_stream *stream,
                                const struct stepaf_launch *planned, struct stepaf_launch *launches)
{
    bool changed = stepaf_stream_is_guarded(stream);

    for (uint32_t k = 0; k < stream->launches.n_send; k++)
        for (uint32_t i = 0; i < launches[k].args.n_tensors; i++)
            changed =
                changed || (launches[k].args.tensors[i].proto == STEPAF_PROTO_RDMA &&
                            launches[k].args.tensors[i].data != planned[k].args.tensors[i].data);
    changed = changed && !stream->plan->keeps_sources;
    for (uint32_t k = 0; k < stream->launches.n_send; k++)
        for (uint32_t i = 0; i < launches[k].args.n_tensors; i++)
            if (launches[k].args.tensors[i].proto == STEPAF_PROTO_RDMA)
                stepaf_stream_guard_tensor(&launches[k].args.tensors[i], changed);
    return changed;
}

stepaf_status_t stepaf_stream_guard_launch(const struct stepaf_stream *stream, uint8_t slot,
                                           void *cuda_stream)
{
    const struct stepaf_launch *launch = &stream->launches.guard[slot * stream->launches.n_guard];
    stepaf_status_t status = STEPAF_OK;

    for (uint32_t k = 0; k < stream->launches.n_guard && !status; k++)
        if (launch[k].args.n_tensors)
            status = stepaf_gpu_launch(stream->plan->ctx->gpu.device, STEPAF_KERNEL_GATE,
                                       &launch[k].args, 1, launch[k].threads, false, cuda_stream);
    return status;
}
