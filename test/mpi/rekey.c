/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that are withdrawn, and declared anew with other sizes, from one commit to the next: what
 * was declared before is in force until then; then its receive buffers are gone, and the number
 * says what it says now.
 *
 * --rounds N: of withdrawal, declaration and commit. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum { PUSH = 7, PULL = 8, MAX_BYTES = 300000, MAX_DEPTH = 3, OPS = 5, LINE = 64 };

/* What a round declares, and how. */
struct round {
    int number;
    size_t bytes;
    unsigned depth;
    bool own;      /* FFN ranks receive into memory of their own */
    bool one_shot; /* stepaf_push_pull instead of a plan */
};

struct rank {
    struct hs_job *job;
    struct round round;
    unsigned char *source, *target;  /* from stepaf_alloc; target: a piece for each peer */
    unsigned char *buffers, *before; /* own receive buffers, and those of the round before */
    size_t buffers_bytes, before_bytes;
    stepaf_plan_h plan;
};

static struct round make_round(int number)
{
    static const size_t sizes[] = {64, 5000, MAX_BYTES, 1, 40000};

    return (struct round){.number = number,
                          .bytes = sizes[number % 5],
                          .depth = 1 + (unsigned)number % MAX_DEPTH,
                          .own = number % 2 == 1,
                          .one_shot = number % 3 == 2};
}

static uint64_t stream_of(const struct round *round, int rank, int op)
{
    return hs_mix((uint64_t)round->number * 1000 + (uint64_t)rank * 100 + (uint64_t)op);
}

static void fill(unsigned char *place, const struct round *round, int rank, int op)
{
    hs_fill(place, round->bytes, stream_of(round, rank, op));
}

static bool expect(const unsigned char *place, const struct round *round, int rank, int op)
{
    return hs_verify("tensor", place, round->bytes, stream_of(round, rank, op));
}

static bool declare(struct rank *rank)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH, .depth = rank->round.depth};

    if (!HS_OK(stepaf_key_declare(rank->job->ctx, PUSH, STEPAF_PUSH, rank->round.bytes, &params)))
        return false;
    return HS_OK(stepaf_key_declare(rank->job->ctx, PULL, STEPAF_PULL, rank->round.bytes, &params));
}

static bool receive_into_own(struct rank *rank)
{
    size_t slice = rank->round.bytes * rank->round.depth;

    rank->buffers_bytes = slice * (size_t)rank->job->peers;
    rank->buffers = malloc(rank->buffers_bytes);
    return HS_TRUE(rank->buffers != NULL) &&
           HS_OK(stepaf_register(rank->job->ctx, rank->buffers, rank->buffers_bytes)) &&
           HS_OK(stepaf_key_set_recv(rank->job->ctx, PUSH, rank->buffers, rank->buffers_bytes, NULL,
                                     0));
}

static stepaf_tensor_t *pulls(const struct rank *rank, stepaf_tensor_t *list)
{
    for (int p = 0; p < rank->job->peers; p++)
        list[p] = (stepaf_tensor_t){PULL, rank->target + (size_t)p * MAX_BYTES * MAX_DEPTH,
                                    rank->round.bytes};
    return list;
}

static bool make_plan(struct rank *rank)
{
    stepaf_tensor_t push = {PUSH, rank->source, rank->round.bytes}, list[HS_MAX_RANKS];

    return HS_OK(stepaf_plan_create(rank->job->ctx, &push, 1, pulls(rank, list), rank->job->peers,
                                    0, &rank->plan));
}

static bool prepare(struct rank *rank)
{
    rank->plan = NULL;
    if (!declare(rank))
        return false;
    if (rank->job->role == STEPAF_FFN)
        return !rank->round.own || receive_into_own(rank);
    return rank->round.one_shot || make_plan(rank);
}

static bool ask(struct rank *rank, int op)
{
    stepaf_tensor_t push = {PUSH, rank->source, rank->round.bytes}, list[HS_MAX_RANKS];
    stepaf_request_h request = NULL;
    int n = rank->job->peers;

    fill(rank->source, &rank->round, rank->job->index, op);
    if (!HS_OK(rank->round.one_shot
                   ? stepaf_push_pull(rank->job->ctx, &push, 1, pulls(rank, list), n, &request)
                   : stepaf_start(rank->plan, &request)) ||
        !HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)))
        return false;
    for (int p = 0; p < n; p++)
        if (!expect(rank->target + (size_t)p * MAX_BYTES * MAX_DEPTH +
                        stepaf_request_slot(request) * rank->round.bytes,
                    &rank->round, 50 + p, op))
            return false;
    return true;
}

static bool answer_one(struct rank *rank, stepaf_batch_h batch, int op)
{
    stepaf_tensor_t tensor = {PULL, rank->source, rank->round.bytes};
    stepaf_request_h request = NULL;
    stepaf_batch_info_t info = {.size = sizeof(info)};
    stepaf_tensor_info_t in = {.size = sizeof(in)};

    if (!HS_OK(stepaf_batch_query(batch, &info)) || !HS_OK(stepaf_batch_tensor(batch, 0, &in)) ||
        !HS_INT(in.bytes, ==, rank->round.bytes) ||
        !expect(in.data, &rank->round, info.attention_rank, op))
        return false;
    return HS_OK(stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, &request)) &&
           HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
}

static bool answer(struct rank *rank, int op)
{
    stepaf_batch_h batches[HS_MAX_RANKS];
    int n = 0;

    if (!HS_OK(stepaf_recv(rank->job->ctx, STEPAF_FROM_EACH, 0, STEPAF_TIMEOUT_DEFAULT, batches,
                           HS_MAX_RANKS, &n)) ||
        !HS_INT(n, ==, rank->job->peers))
        return false;
    fill(rank->source, &rank->round, 50 + rank->job->index, op);
    for (int i = 0; i < n; i++)
        if (!answer_one(rank, batches[i], op))
            return false;
    return true;
}

static bool exchange(struct rank *rank, int from, int to)
{
    for (int op = from; op < to; op++)
        if (!(rank->job->role == STEPAF_FFN ? answer(rank, op) : ask(rank, op)))
            return false;
    return hs_sync(rank->job);
}

/* What the library holds for receiving is this round's, and no more. */
static void look_at_memory(struct rank *rank)
{
    size_t slice = (rank->round.bytes * rank->round.depth + LINE - 1) / LINE * LINE;
    bool allocated = rank->job->role == STEPAF_FFN && !rank->round.own;
    stepaf_memory_use_t use = {.size = sizeof(use)};

    HS_OK(stepaf_memory_query(rank->job->ctx, &use));
    HS_INT(use.receive, ==, allocated ? slice * (size_t)rank->job->peers : 0);
}

/* The commit is over: memory of the round before is its owner's again. */
static void take_back_memory(struct rank *rank)
{
    if (rank->before == NULL)
        return;
    HS_OK(stepaf_deregister(rank->job->ctx, rank->before));
    memset(rank->before, 0x5a, rank->before_bytes);
}

static void look_at_old_memory(struct rank *rank)
{
    size_t wrong = 0;

    for (size_t i = 0; rank->before != NULL && i < rank->before_bytes; i++)
        wrong += rank->before[i] != 0x5a;
    HS_INT(wrong, ==, 0);
    free(rank->before);
    rank->before = NULL;
}

/* A plan that is told of between an FFN rank's withdrawal and the commit. */
static bool plan_anew(struct rank *rank)
{
    if (rank->plan == NULL || rank->round.number % 2)
        return true;
    return HS_OK(stepaf_plan_destroy(rank->plan)) && make_plan(rank);
}

/* FFN ranks first: then the commit cannot be, and what was goes on. */
static bool withdraw(struct rank *rank)
{
    stepaf_context_h ctx = rank->job->ctx;
    uint32_t epoch = stepaf_epoch(ctx);
    stepaf_plan_h plan = NULL;

    if (rank->job->role == STEPAF_FFN) {
        HS_OK(stepaf_key_withdraw(ctx, PUSH));
        HS_OK(stepaf_key_withdraw(ctx, PULL));
        if (rank->buffers != NULL)
            HS_REFUSED(stepaf_deregister(ctx, rank->buffers), STEPAF_ERR_STATE);
    } else if (!rank->round.one_shot) {
        HS_REFUSED(stepaf_key_withdraw(ctx, PUSH), STEPAF_ERR_STATE); /* the plan names it */
        HS_REFUSED(stepaf_key_withdraw(ctx, PULL), STEPAF_ERR_STATE);
    }
    if (rank->round.number % 4 == 1) {
        HS_REFUSED(stepaf_commit(ctx), STEPAF_ERR_KEY);
        HS_INT(stepaf_epoch(ctx), ==, epoch);
    }
    if (!hs_sync(rank->job) || !plan_anew(rank) || !exchange(rank, OPS, 2 * OPS))
        return false;
    if (rank->job->role == STEPAF_ATTENTION) {
        if (!rank->round.one_shot)
            HS_OK(stepaf_plan_destroy(rank->plan));
        HS_OK(stepaf_key_withdraw(ctx, PUSH));
        HS_OK(stepaf_key_withdraw(ctx, PULL));
    }
    HS_REFUSED(stepaf_key_withdraw(ctx, PUSH), STEPAF_ERR_KEY);
    if (rank->job->role == STEPAF_ATTENTION) {
        stepaf_tensor_t push = {PUSH, rank->source, 1};
        HS_REFUSED(stepaf_plan_create(ctx, &push, 1, NULL, 0, 0, &plan), STEPAF_ERR_KEY);
    }
    rank->before = rank->buffers;
    rank->before_bytes = rank->buffers_bytes;
    rank->buffers = NULL;
    return true;
}

static bool do_round(struct rank *rank)
{
    if (!prepare(rank) || !HS_OK(stepaf_commit(rank->job->ctx)))
        return false;
    take_back_memory(rank);
    look_at_memory(rank);
    if (!exchange(rank, 0, OPS))
        return false;
    look_at_old_memory(rank);
    return withdraw(rank);
}

static void body(struct hs_job *job)
{
    int rounds = (int)hs_option_int(job, "--rounds", 30);
    struct rank rank = {.job = job};
    stepaf_memory_use_t use = {.size = sizeof(use)};
    void *place = NULL;

    if (!hs_open(job) || !HS_OK(stepaf_alloc(job->ctx, MAX_BYTES, STEPAF_MEM_HOST, &place)))
        return;
    rank.source = place;
    if (!HS_OK(stepaf_alloc(job->ctx, (size_t)job->peers * MAX_BYTES * MAX_DEPTH, STEPAF_MEM_HOST,
                            &place)))
        return;
    rank.target = place;
    hs_step("rounds");
    for (int i = 0; i < rounds && !hs_failed(); i++) {
        rank.round = make_round(i);
        if (!do_round(&rank))
            break;
    }
    if (!hs_failed() && HS_OK(stepaf_commit(job->ctx))) {
        take_back_memory(&rank);
        HS_OK(stepaf_memory_query(job->ctx, &use));
        HS_INT(use.receive + use.declared + use.per_key, ==, 0);
    }
    hs_sync(job);
    stepaf_finalize(job->ctx);
    job->ctx = NULL;
    free(rank.buffers);
    free(rank.before);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "rekey", .options = "--rounds", .limit_s = 60, .n_boots = 1, .body = body};
    return hs_main(argc, argv, &test);
}
