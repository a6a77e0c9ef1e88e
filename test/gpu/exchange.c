/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of stream plans, from either side, with bytes made and checked on the GPU. */
#include "gpu/exchange.h"

#include <stdlib.h>

enum { PUSH = GX_PUSH, PULL = GX_PULL };

/* Sizes at which something changes: heads, groups of pieces, the gate. */
static const size_t edges[] = {
    0,    1,    2,     7,     8,     15,    16,     17,      83,      84,      85,      127,
    128,  129,  1007,  1008,  1009,  1023,  1024,   1025,    2015,    2016,    2017,    4095,
    4096, 4097, 16127, 16128, 16129, 16384, 917504, 1835008, 3145728, 8388608, 8388609, 9437184};
enum { EDGES = sizeof edges / sizeof edges[0] };

/* A size up to @a most: often an edge, all of it or almost all, else small ones more often. */
static size_t choose_size(size_t most, uint64_t random)
{
    size_t edge = edges[(random >> 8) % EDGES], bits = 0;

    switch (random % 8) {
    case 0:
    case 1:
        return edge < most ? edge : most;
    case 2:
        return most;
    case 3:
        return most > 33 ? most - (random >> 8) % 33 : most;
    default:
        while (bits < 32 && most >> bits > 0)
            bits++;
        bits = bits > 0 ? (random >> 8) % (bits + 1) : 0;
        return (size_t)((random >> 16) % ((UINT64_C(1) << bits) + 1)) % (most + 1);
    }
}

/* Pushes are the same for all FFN ranks. */
uint64_t gx_place(const struct gx_plan *plan, int direction, int peer, int index)
{
    int mine = plan->job->index, other = peer < 0 ? -1 : stepaf_peer_rank(plan->ctx, peer);
    bool attention = plan->job->role == STEPAF_ATTENTION;
    uint64_t a = (uint64_t)(attention ? mine : other);
    uint64_t f = direction == PUSH ? 0 : (uint64_t)(attention ? other : mine) + 1;

    return (uint64_t)plan->id << 40 | (uint64_t)direction << 36 | a << 24 | f << 12 |
           (uint64_t)index;
}

uint32_t gx_size(const struct gx_plan *plan, int direction, int peer, int index, uint32_t n)
{
    size_t most = direction == PUSH ? plan->shape.push[index] : plan->shape.pull[index];
    uint64_t place = gx_place(plan, direction, peer, index);

    if (plan->fixed)
        return (uint32_t)most;
    if (plan->even && direction == PULL)
        return (uint32_t)most - plan->less;
    if (n % 3 == 2) /* all as planned, which copy engines tell of by fewer words */
        return (uint32_t)most;
    return (uint32_t)choose_size(most, hs_mix(hs_mix(place ^ hs_mix(plan->seed)) + n));
}

static cudaStream_t stream_of(const struct gx_plan *plan, cudaStream_t stream)
{
    return stream != NULL ? stream : plan->stream;
}

int gx_out(const struct gx_plan *plan, uint32_t n, stepaf_tensor_t *tensors)
{
    bool attention = plan->job->role == STEPAF_ATTENTION;
    int each = attention ? plan->shape.n_push : plan->shape.n_pull;
    int all = attention ? each : each * plan->job->peers;

    for (int at = 0; at < all; at++) {
        int index = at % each, peer = attention ? -1 : at / each;
        tensors[at] = (stepaf_tensor_t){
            .key = gx_key(plan->id, attention ? PUSH : PULL, index),
            .bytes = gx_size(plan, attention ? PUSH : PULL, peer, index, n),
        };
    }
    return all;
}

/* What goes out next: its bytes, made on the stream. Answers have a source for each slot. */
static bool make_bytes(struct gx_plan *plan, const stepaf_tensor_t *tensors, int n,
                       cudaStream_t stream)
{
    bool attention = plan->job->role == STEPAF_ATTENTION;
    int each = attention ? plan->shape.n_push : plan->shape.n_pull;
    unsigned slot = plan->n_sent % plan->shape.depth;
    struct gx_work work = {.tally = plan->tally, .n = (uint32_t)n};

    for (int at = 0; at < n; at++) {
        int index = at % each, peer = attention ? -1 : at / each;
        size_t offset = attention ? 0 : slot * plan->shape.pull[index];
        work.pieces[at] = (struct gx_piece){
            .data = plan->source[at] + offset,
            .place = gx_place(plan, attention ? PUSH : PULL, peer, index),
            .bytes = (uint32_t)tensors[at].bytes,
        };
    }
    return GX_CUDA(gx_launch_fill(&work, stream));
}

bool gx_look(struct gx_plan *plan, cudaStream_t stream)
{
    bool attention = plan->job->role == STEPAF_ATTENTION;
    int each = attention ? plan->shape.n_pull : plan->shape.n_push;
    unsigned slot = plan->n_seen % plan->shape.depth;
    const uint32_t *landed = stepaf_plan_bytes(plan->handle, slot);
    struct gx_work work = {.tally = plan->tally, .n = (uint32_t)(each * plan->job->peers)};
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    stream = stream_of(plan, stream);
    for (int at = 0; at < (int)work.n; at++) {
        int index = at % each, peer = at / each;
        if (!HS_OK(stepaf_plan_tensor(plan->handle, slot, peer, index, &info)))
            return false;
        work.pieces[at] = (struct gx_piece){
            .data = info.data,
            .place = gx_place(plan, attention ? PULL : PUSH, peer, index),
            .landed = landed + at,
            .bytes = gx_size(plan, attention ? PULL : PUSH, peer, index, plan->n_seen),
            .room = (uint32_t)info.max_bytes,
        };
    }
    plan->n_seen++;
    return GX_CUDA(gx_launch_check(&work, stream)) &&
           GX_CUDA(gx_launch_count(&plan->tally->seen, stream));
}

/* The bytes that were made have gone out. */
static stepaf_status_t count_sent(struct gx_plan *plan, stepaf_status_t status, cudaStream_t stream)
{
    if (status != STEPAF_OK)
        return status;
    plan->n_sent++;
    return GX_CUDA(gx_launch_count(&plan->tally->sent, stream)) ? STEPAF_OK : STEPAF_ERR_TRANSPORT;
}

/* By way of the host, streams have room for so many operations only: whether to try once more. */
static bool again(stepaf_status_t status, int64_t *deadline_p)
{
    if (status != STEPAF_ERR_WOULD_BLOCK || getenv("STEPAF_CUDA_PROXY") == NULL)
        return false;
    if (*deadline_p == 0)
        *deadline_p = hs_now_ns() + 20000000000LL * hs_slow();
    hs_yield();
    return hs_now_ns() < *deadline_p;
}

stepaf_status_t gx_start(struct gx_plan *plan, cudaStream_t stream, stepaf_request_h *request_p)
{
    stepaf_tensor_t push[GX_TENSORS];
    int n = gx_out(plan, plan->n_sent, push);
    stepaf_start_params_t params = {
        .field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = n};

    stepaf_status_t status;
    int64_t deadline = 0;

    stream = stream_of(plan, stream);
    if (!make_bytes(plan, push, n, stream))
        return STEPAF_ERR_TRANSPORT;
    do
        status =
            stepaf_start_on_stream(plan->handle, plan->fixed ? NULL : &params, stream, request_p);
    while (again(status, &deadline));
    return count_sent(plan, status, stream);
}

stepaf_status_t gx_respond(struct gx_plan *plan, cudaStream_t stream)
{
    stepaf_tensor_t pull[GX_PEERS * GX_TENSORS];
    int n = gx_out(plan, plan->n_sent, pull);

    stream = stream_of(plan, stream);
    if (!make_bytes(plan, pull, n, stream))
        return STEPAF_ERR_TRANSPORT;
    return count_sent(
        plan, stepaf_respond_on_stream(plan->handle, plan->fixed ? NULL : pull, stream), stream);
}

stepaf_status_t gx_wait(struct gx_plan *plan, cudaStream_t stream)
{
    stepaf_status_t status = stepaf_wait_on_stream(plan->handle, stream_of(plan, stream));

    if (status != STEPAF_OK)
        return status;
    return gx_look(plan, stream) ? STEPAF_OK : STEPAF_ERR_TRANSPORT;
}

stepaf_status_t gx_recv(struct gx_plan *plan, cudaStream_t stream)
{
    stepaf_status_t status;
    int64_t deadline = 0;

    do
        status = stepaf_recv_on_stream(plan->handle, stream_of(plan, stream));
    while (again(status, &deadline));
    if (status != STEPAF_OK)
        return status;
    return gx_look(plan, stream) ? STEPAF_OK : STEPAF_ERR_TRANSPORT;
}

bool gx_exchange(struct gx_plan *plan, cudaStream_t stream)
{
    if (plan->job->role == STEPAF_ATTENTION)
        return HS_OK(gx_start(plan, stream, NULL)) && HS_OK(gx_wait(plan, stream));
    return HS_OK(gx_recv(plan, stream)) && HS_OK(gx_respond(plan, stream));
}
