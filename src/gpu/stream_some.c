/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/stream_some.h"
#include "base/round.h"
#include "core/late.h"
#include "core/plan.h"

_Static_assert((int)STEPAF_SOME_SLOTS == (int)STEPAF_MAX_DEPTH, "all of a plan's");
_Static_assert(STEPAF_KERNEL_TENSORS == 64, "a bit for each peer");

enum { ALIGN = 512 };

static const struct stepaf_stream_kernels some_kernels = {
    .send = {STEPAF_KERNEL_SEND_SOME, STEPAF_KERNEL_SEND_SOME_CHUNKS},
    .gate = STEPAF_KERNEL_GATE_SOME,
    .unpack = {STEPAF_KERNEL_UNPACK_SOME, STEPAF_KERNEL_UNPACK_SOME_CHUNKS},
};

stepaf_status_t stepaf_some_set(struct stepaf_stream *stream, uint32_t n, int64_t patience_us)
{
    struct stepaf_plan_obj *plan = stream->plan;

    if (n && n < plan->ctx->n_peers && stream->launches.n_receive > 1)
        return stepaf_error_set(STEPAF_ERR_LIMIT, STEPAF_PHASE_START,
                                "a plan on streams that does not wait for all answers pulls at "
                                "most %d tensors, over all peers",
                                STEPAF_KERNEL_TENSORS);
    bool was = stepaf_some_is_asked(stream);
    stepaf_plan_need(plan, n, patience_us);
    if (was || stepaf_some_is_asked(stream))
        plan->ctx->commit.changed = true;
    return STEPAF_OK;
}

bool stepaf_some_is_asked(const struct stepaf_stream *stream)
{
    return stream->plan->partial.n_answers > 0;
}

uint64_t stepaf_some_control_bytes(const struct stepaf_stream *stream)
{
    return stepaf_some_is_asked(stream) ? stepaf_round_up(sizeof(struct stepaf_some), ALIGN) : 0;
}

/* ---- the commit ---- */

/* Return how many peers are not lost. */
static uint32_t count_alive(const struct stepaf_stream *stream)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;
    uint32_t n = 0;

    for (uint32_t p = 0; p < ctx->n_peers; p++)
        n += !ctx->peers[p].lost;
    return n;
}

/* Return how many answers complete an operation: all, if there are no more peers. */
static uint32_t count_needed(const struct stepaf_stream *stream)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;
    uint32_t n_in = 0;

    for (uint32_t p = 0; p < ctx->n_peers; p++)
        n_in += !ctx->peers[p].is_out;
    return stream->need < n_in ? stream->need : n_in;
}

void stepaf_some_compile(struct stepaf_stream *stream, uint8_t *control)
{
    stream->some = NULL;
    if (!stepaf_some_is_asked(stream))
        return;
    stream->some = (struct stepaf_some *)control;
    stream->need = stream->plan->partial.n_answers;
    stream->launches.kernels = &some_kernels;
    for (uint32_t i = 0; i < stream->plan->depth * stream->launches.n_send; i++)
        stream->launches.send[i].args.asked = stream->some;
    for (uint32_t i = 0; i < stream->plan->depth * stream->launches.n_receive; i++)
        stream->launches.receive[i].args.awaited = stream->some;
}

/* Limit the patience to a part of the deadline. The punctual peers meanwhile wait for this rank's
 * next start, which may itself wait half of the deadline for the late peers. */
static uint64_t patience_ns(const struct stepaf_stream *stream)
{
    uint64_t most_us = (uint64_t)stream->plan->ctx->env.stream_timeout_us / 4;
    uint64_t us = (uint64_t)stream->plan->partial.patience_us;

    return (us < most_us ? us : most_us) * 1000;
}

stepaf_status_t stepaf_some_begin(const struct stepaf_stream *stream)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;
    struct stepaf_some some = {
        .patience_ns = patience_ns(stream),
        .need = count_needed(stream),
        .n_each = stream->n_in,
    };

    for (uint32_t p = 0; p < ctx->n_peers; p++)
        some.gone |= (uint64_t)ctx->peers[p].lost << p;
    return stepaf_gpu_write(ctx->gpu.device, stream->some, &some, sizeof(some));
}

/* ---- losses ---- */

bool stepaf_some_goes_on(const struct stepaf_stream *stream)
{
    return stream->some && stream->epoch == stream->plan->ctx->epoch && !stream->failure &&
           count_alive(stream) >= count_needed(stream);
}

uint32_t stepaf_some_spare(const struct stepaf_stream *stream)
{
    return count_alive(stream) - count_needed(stream);
}

void stepaf_some_lose(const struct stepaf_stream *stream, uint32_t peer)
{
    __atomic_or_fetch(&stream->watch->lost, (uint64_t)1 << peer, __ATOMIC_RELEASE);
}

void stepaf_some_note(const struct stepaf_stream *stream, struct stepaf_op *op)
{
    const struct stepaf_ctx *ctx = stream->plan->ctx;
    uint64_t mask = __atomic_load_n(&stream->watch->answers[op->slot].mask, __ATOMIC_ACQUIRE);

    for (uint32_t p = 0; p < ctx->n_peers; p++)
        op->op_peers[p].state = mask >> p & 1 ? STEPAF_OP_PEER_ANSWERED /* maybe lost since */
                                : ctx->peers[p].lost ? STEPAF_OP_PEER_LOST
                                                     : STEPAF_OP_PEER_LEFT_OUT;
}

/* ---- enqueueing ---- */

stepaf_status_t stepaf_some_settle(const struct stepaf_stream *stream, uint8_t slot,
                                   void *cuda_stream, bool *begun_p)
{
    const struct stepaf_launch *launch = &stream->launches.receive[slot];
    struct stepaf_gpu *gpu = stream->plan->ctx->gpu.device;
    stepaf_status_t status;

    if (!launch->threads) /* all peers are lost */
        return STEPAF_OK;
    status = stepaf_gpu_launch(gpu, STEPAF_KERNEL_SETTLE, &launch->args, 1, launch->threads, false,
                               cuda_stream);
    *begun_p = *begun_p || !status;
    if (!status && launch->blocks)
        status = stepaf_gpu_launch(gpu, some_kernels.unpack[launch->chunks], &launch->args,
                                   launch->blocks, STEPAF_WARP, true, cuda_stream);
    return status;
}
