/* SPDX-License-Identifier: Apache-2.0 */
#include "cost_job.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <stepaf/boot.h>
#include <stepaf/stepaf.h>

#include "api/handles.h"
#include "core/plan.h"
#include "verdict/verdict.h"

enum {
    WARM_UP = 32,
    BLOCKS = 3,
    PUSH = 1,
    PULL = 2,
    PATIENCE_US = 60000000,
    SMALL = 64,
    LARGE = 8192
};

const struct cost_carrier *cost_carrier;
int cost_n_ffn, cost_n_tensors;
size_t cost_bytes;

/* By world rank; the first is the attention rank's. */
static stepaf_boot_local_t *local;
static stepaf_boot_t boots[1 + COST_FFN_MAX];
static stepaf_context_h contexts[1 + COST_FFN_MAX];
static uint8_t *memories[1 + COST_FFN_MAX];
static stepaf_plan_h plan;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static bool takes_turns;

void cost_must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s\n", what, stepaf_last_error()->text);
    exit(99);
}

/* ---- turns ---- */

void cost_give_way(void)
{
    const struct timespec pause = {.tv_nsec = 20000};

    if (!takes_turns)
        return;
    pthread_mutex_unlock(&turn);
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&turn);
}

static stepaf_status_t gather(void *self, const void *data, size_t bytes, void **all_p,
                              size_t *offsets_p, int64_t timeout_us)
{
    const stepaf_boot_t *boot = self;

    pthread_mutex_unlock(&turn);
    stepaf_status_t status = boot->allgather(boot->self, data, bytes, all_p, offsets_p, timeout_us);
    pthread_mutex_lock(&turn);
    return status;
}

static stepaf_status_t meet(void *self, stepaf_group_t group, const int *ranks, int n,
                            int64_t timeout_us)
{
    const stepaf_boot_t *boot = self;

    pthread_mutex_unlock(&turn);
    stepaf_status_t status = boot->barrier(boot->self, group, ranks, n, timeout_us);
    pthread_mutex_lock(&turn);
    return status;
}

static void leave(void *self)
{
    const stepaf_boot_t *boot = self;

    if (boot->close)
        boot->close(boot->self);
}

static stepaf_boot_t boot_of(int rank)
{
    cost_must(!stepaf_boot_local_attach(local, rank, -1, &boots[rank]), "attach");
    stepaf_boot_t boot = boots[rank];
    boot.self = &boots[rank];
    boot.allgather = gather;
    boot.barrier = meet;
    boot.close = leave;
    boot.lost = NULL;
    return boot;
}

/* ---- the job ---- */

static void declare(stepaf_context_h ctx)
{
    for (int i = 0; i < cost_n_tensors; i++)
        cost_must(!stepaf_key_declare(ctx, (uint64_t)PUSH << 32 | (uint64_t)i, STEPAF_PUSH,
                                      cost_bytes, NULL),
                  "key");
    cost_must(!stepaf_key_declare(ctx, (uint64_t)PULL << 32, STEPAF_PULL, cost_bytes, NULL), "key");
}

static void make_plan(stepaf_context_h ctx, uint8_t *memory)
{
    stepaf_tensor_t push[STEPAF_MAX_TENSORS], pull[COST_FFN_MAX];

    for (int i = 0; i < cost_n_tensors; i++)
        push[i] = (stepaf_tensor_t){.key = (uint64_t)PUSH << 32 | (uint64_t)i,
                                    .data = memory + (size_t)i * cost_bytes,
                                    .bytes = cost_bytes};
    for (int f = 0; f < cost_n_ffn; f++)
        pull[f] = (stepaf_tensor_t){.key = (uint64_t)PULL << 32,
                                    .data = memory + (size_t)(cost_n_tensors + f) * cost_bytes,
                                    .bytes = cost_bytes};
    cost_must(!stepaf_plan_create(ctx, push, cost_n_tensors, pull, cost_n_ffn, 0, &plan), "plan");
}

static void *join(void *arg)
{
    int rank = *(int *)arg;
    stepaf_context_h *ctx = &contexts[rank];
    void *memory;

    pthread_mutex_lock(&turn);
    stepaf_boot_t boot = boot_of(rank);
    cost_must(!stepaf_init(&boot, NULL, ctx), "init");
    cost_must(!stepaf_alloc(*ctx, (size_t)(cost_n_tensors + COST_FFN_MAX) * cost_bytes,
                            STEPAF_MEM_HOST, &memory),
              "alloc");
    memories[rank] = memory;
    declare(*ctx);
    if (rank == 0)
        make_plan(*ctx, memory);
    cost_must(!stepaf_commit(*ctx), "commit");
    pthread_mutex_unlock(&turn);
    return NULL;
}

static void *depart(void *arg)
{
    pthread_mutex_lock(&turn);
    stepaf_finalize(contexts[*(int *)arg]);
    pthread_mutex_unlock(&turn);
    return NULL;
}

/* All ranks at a time, in turns. */
static void run_ranks(void *(*run)(void *arg))
{
    pthread_t threads[1 + COST_FFN_MAX];
    int ranks[1 + COST_FFN_MAX];

    cost_carrier->count(false);
    takes_turns = true;
    for (int i = 0; i <= cost_n_ffn; i++) {
        ranks[i] = i;
        cost_must(!pthread_create(&threads[i], NULL, run, &ranks[i]), "thread");
    }
    for (int i = 0; i <= cost_n_ffn; i++)
        pthread_join(threads[i], NULL);
    takes_turns = false;
}

void cost_open_job(void)
{
    char split[32];

    snprintf(split, sizeof(split), "attn=1,ffn=%d", cost_n_ffn);
    setenv("STEPAF_SPLIT", split, 1);
    cost_must(!stepaf_boot_local_create(1 + cost_n_ffn, &local), "bootstrap");
    run_ranks(join);
}

void cost_close_job(void)
{
    run_ranks(depart);
    stepaf_boot_local_destroy(local);
}

/* ---- what is counted ---- */

static __attribute__((noinline)) void counted_start(stepaf_request_h *request_p)
{
    cost_must(!stepaf_start(plan, request_p), "start");
}

static __attribute__((noinline)) void counted_wait(stepaf_request_h request)
{
    cost_must(!stepaf_wait(request, PATIENCE_US), "wait");
}

static __attribute__((noinline)) void counted_recv(stepaf_context_h ctx, stepaf_batch_h *batch_p)
{
    int n;

    cost_must(!stepaf_recv(ctx, STEPAF_FROM_ANY, 0, PATIENCE_US, batch_p, 1, &n), "recv");
}

static __attribute__((noinline)) void counted_respond(stepaf_batch_h batch,
                                                      const stepaf_tensor_t *tensor)
{
    cost_must(!stepaf_respond(batch, tensor, 1, STEPAF_RESPOND_RELEASE, NULL), "respond");
}

static __attribute__((noinline)) void counts_end(const char *what)
{
    printf("%s %d %d %zu %d\n", what, cost_n_ffn, cost_n_tensors, cost_bytes, COST_OPERATIONS);
}

static bool begin(enum cost_step step, enum cost_step counted)
{
    if (cost_carrier->begin)
        cost_carrier->begin(step);
    cost_carrier->count(step == counted);
    return step == counted;
}

static void end(enum cost_step step)
{
    if (cost_carrier->end)
        cost_carrier->end(step);
}

/* At one FFN rank. */
static void serve(int f, enum cost_step counted)
{
    stepaf_tensor_t tensor = {
        .key = (uint64_t)PULL << 32, .data = memories[f], .bytes = cost_bytes};
    stepaf_batch_h batch;
    int n;

    if (begin(COST_RECV, counted))
        counted_recv(contexts[f], &batch);
    else
        cost_must(!stepaf_recv(contexts[f], STEPAF_FROM_ANY, 0, PATIENCE_US, &batch, 1, &n),
                  "recv");
    end(COST_RECV);
    if (begin(COST_RESPOND, counted))
        counted_respond(batch, &tensor);
    else
        cost_must(!stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, NULL), "respond");
    end(COST_RESPOND);
}

void cost_operate(enum cost_step counted)
{
    stepaf_request_h request;

    if (begin(COST_START, counted))
        counted_start(&request);
    else
        cost_must(!stepaf_start(plan, &request), "start");
    end(COST_START);
    for (int f = 1; f <= cost_n_ffn; f++)
        serve(f, counted);
    if (begin(COST_WAIT, counted))
        counted_wait(request);
    else
        cost_must(!stepaf_wait(request, PATIENCE_US), "wait");
    end(COST_WAIT);
    cost_carrier->count(false);
}

/* Where verdicts are on: none is late, or picked to learn from, no poll comes late, and nothing is due behind one. Under
 * callgrind all of it would be, the more the busier the machine is. */
static void have_none_judged(void)
{
    struct stepaf_verdict_state *state = stepaf_verdict_of(stepaf_peek_ctx(contexts[0]));

    for (int rank = 0; state && rank <= cost_n_ffn; rank++) {
        struct stepaf_watch *watch = &stepaf_verdict_of(stepaf_peek_ctx(contexts[rank]))->watch;
        watch->gaps_from = INT64_MAX;
        watch->live_due = watch->look_due = stepaf_ticks() + INT64_MAX / 2;
        stepaf_peek_ctx(contexts[rank])->polling.look_at = watch->live_due;
    }
    struct stepaf_plan_obj *made = state ? stepaf_table_get(&state->ctx->tables.plans, 0) : NULL;
    if (made)
        made->watched = stepaf_watch_plan_begin(made->seq + INT32_MAX);
}

static void measure_job(void)
{
    static const char *const names[] = {[COST_START] = "start",
                                        [COST_WAIT] = "wait",
                                        [COST_RECV] = "recv",
                                        [COST_RESPOND] = "respond"};

    cost_open_job();
    for (int i = 0; i < WARM_UP; i++)
        cost_operate(COST_NOTHING);
    for (int step = COST_START; step <= COST_RESPOND; step++) {
        for (int block = 0; block < BLOCKS; block++) {
            have_none_judged();
            for (int i = 0; i < COST_OPERATIONS; i++)
                cost_operate((enum cost_step)step);
            counts_end(names[step]);
        }
    }
    if (cost_carrier->judge)
        cost_carrier->judge();
    cost_close_job();
}

static void measure_at(int n_ffn, int n_tensors, size_t bytes)
{
    cost_n_ffn = n_ffn;
    cost_n_tensors = n_tensors;
    cost_bytes = bytes;
    measure_job();
}

static void be_silent_of_times(void)
{
    /* Under callgrind everything takes long: answers would tell that. */
    setenv("STEPAF_TIMES_US", "3600000000", 1);
}

void cost_measure_all(void)
{
    be_silent_of_times();
    for (int n = 1; n <= COST_FFN_MAX; n *= 2)
        measure_at(n, 1, SMALL);
    for (int n = 1; n <= COST_FFN_MAX; n *= 2)
        measure_at(n, 1, LARGE);
    for (int n = 1; n <= COST_FFN_MAX; n *= 2)
        measure_at(n, 4, LARGE);
}

void cost_measure_some(void)
{
    be_silent_of_times();
    for (int n = 1; n <= COST_FFN_SOME; n += COST_FFN_SOME - 1) {
        measure_at(n, 1, SMALL);
        measure_at(n, 4, LARGE);
    }
}
