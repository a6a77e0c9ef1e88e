/* SPDX-License-Identifier: Apache-2.0 */
#include "member_ops.h"

#include <string.h>

/* A push begins with who has sent it, and its number. */
enum { HEAD = 16, TO_ALL = 99 };
enum { AWAIT_S = 30 };

bool member_ops_prepare(struct member_ops *ops)
{
    struct hs_job *job = ops->job;
    stepaf_tensor_t pulls[HS_MAX_RANKS];
    void *place = NULL;

    if (!HS_OK(stepaf_key_declare(job->ctx, MEMBER_PUSH, STEPAF_PUSH, ops->bytes, NULL)) ||
        !HS_OK(stepaf_key_declare(job->ctx, MEMBER_PULL, STEPAF_PULL, ops->bytes, NULL)) ||
        !HS_OK(
            stepaf_alloc(job->ctx, ops->bytes * (size_t)(job->ffn + 1), STEPAF_MEM_HOST, &place)))
        return false;
    ops->source = place;
    ops->target = ops->source + ops->bytes;
    stepaf_tensor_t push = {MEMBER_PUSH, ops->source, ops->bytes};
    for (int p = 0; p < job->peers; p++)
        pulls[p] = (stepaf_tensor_t){MEMBER_PULL, ops->target + (size_t)p * ops->bytes, ops->bytes};
    return job->role == STEPAF_FFN ||
           HS_OK(stepaf_plan_create(job->ctx, &push, 1, pulls, job->peers, 0, &ops->plan));
}

static uint64_t stream_of(int attention, uint64_t op, int ffn)
{
    return hs_mix((uint64_t)attention * 1000003 + op) + (uint64_t)ffn * 77;
}

uint64_t member_ops_fill(struct member_ops *ops)
{
    uint64_t words[2] = {(uint64_t)ops->job->index, ops->n_ops++};

    memcpy(ops->source, words, HEAD);
    hs_fill(ops->source + HEAD, ops->bytes - HEAD, stream_of(ops->job->index, words[1], TO_ALL));
    return words[1];
}

bool member_ops_verify(const struct member_ops *ops, int p, uint64_t op)
{
    int ffn = stepaf_peer_rank(ops->job->ctx, p);

    return hs_verify("an answer", ops->target + (size_t)p * ops->bytes, ops->bytes,
                     stream_of(ops->job->index, op, ffn));
}

static bool answer_batch(struct member_ops *ops, stepaf_batch_h batch)
{
    stepaf_tensor_info_t in = {.size = sizeof(in)};
    stepaf_tensor_t tensor = {MEMBER_PULL, ops->source, ops->bytes};
    stepaf_request_h request = NULL;
    uint64_t words[2];

    if (!HS_OK(stepaf_batch_tensor(batch, 0, &in)) || !HS_INT(in.bytes, ==, ops->bytes))
        return false;
    memcpy(words, in.data, HEAD);
    if (!hs_verify("a push", (unsigned char *)in.data + HEAD, ops->bytes - HEAD,
                   stream_of((int)words[0], words[1], TO_ALL)))
        return false;
    hs_fill(ops->source, ops->bytes, stream_of((int)words[0], words[1], ops->job->index));
    stepaf_status_t status = stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, &request);
    if (!status)
        status = stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT);
    if (status == STEPAF_ERR_PEER_LOST && ops->may_lose)
        (void)stepaf_release(batch);
    else
        HS_OK(status);
    return !hs_failed();
}

bool member_ops_serve(struct member_ops *ops, int64_t timeout_us)
{
    stepaf_batch_h batches[HS_MAX_RANKS];
    int n = 0;
    stepaf_status_t status =
        stepaf_recv(ops->job->ctx, STEPAF_FROM_ANY, 0, timeout_us, batches, HS_MAX_RANKS, &n);

    if (status == STEPAF_ERR_TIMEOUT || status == STEPAF_ERR_PEER_LOST)
        return false;
    if (!HS_OK(status))
        return false;
    for (int i = 0; i < n; i++)
        if (!answer_batch(ops, batches[i]))
            return false;
    return true;
}

int member_ops_count(const struct member_ops *ops, stepaf_request_h request, uint64_t op)
{
    int n = 0;

    for (int p = 0; p < ops->job->peers; p++) {
        if (stepaf_request_peer(request, stepaf_peer_rank(ops->job->ctx, p)) != STEPAF_OK)
            continue;
        n++;
        if (!member_ops_verify(ops, p, op))
            return -1;
    }
    return n;
}

bool member_ops_is_peer(const struct hs_job *job, int world)
{
    for (int p = 0; p < job->peers; p++)
        if (stepaf_world_rank(job->ctx, STEPAF_GROUP_FFN, stepaf_peer_rank(job->ctx, p)) == world)
            return true;
    return false;
}

bool member_ops_await(const struct hs_job *job, int stamp, int64_t value)
{
    int64_t until_ns = hs_now_ns() + AWAIT_S * 1000000000LL * hs_slow();
    _Atomic int64_t *place = &job->shared->stamp[stamp];

    while (atomic_load(place) < value) {
        if (job->ctx)
            (void)stepaf_progress(job->ctx);
        if (hs_failed() || hs_hopeless(job))
            return false;
        if (hs_now_ns() > until_ns)
            return HS_FAILED("stamp %d is %lld, should come to %lld", stamp,
                             (long long)atomic_load(place), (long long)value);
        hs_sleep_us(200);
    }
    return true;
}

void member_ops_note_most(struct hs_job *job, int stamp, int64_t ns)
{
    _Atomic int64_t *place = &job->shared->stamp[stamp];
    int64_t most = atomic_load(place);

    while (most < ns && !atomic_compare_exchange_weak(place, &most, ns))
        ;
}
