/* SPDX-License-Identifier: Apache-2.0 */
/* What callers meet seldom: --case NAME says what. */
#include "seldom.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static bool make_plan(struct se_rank *rank, uint32_t flags)
{
    const stepaf_tensor_t push = {SE_PUSH, rank->memory, SE_BYTES};
    stepaf_tensor_t pull[2];
    int n = rank->job->ffn;

    for (int i = 0; i < n; i++)
        pull[i] = (stepaf_tensor_t){SE_PULL, rank->memory + (1 + i) * SE_BYTES, SE_BYTES};
    return HS_OK(stepaf_plan_create(rank->job->ctx, &push, 1, pull, n, flags, &rank->plan));
}

bool se_open(struct se_rank *rank, stepaf_params_t params, int depth, uint32_t flags)
{
    stepaf_key_params_t key = {.field_mask = STEPAF_KEY_DEPTH, .depth = depth};
    struct hs_job *job = rank->job;
    void *memory = NULL;

    if (!hs_open_with(job, params) ||
        !HS_OK(stepaf_key_declare(job->ctx, SE_PUSH, STEPAF_PUSH, SE_BYTES, &key)) ||
        !HS_OK(stepaf_key_declare(job->ctx, SE_PULL, STEPAF_PULL, SE_BYTES, &key)) ||
        !HS_OK(stepaf_alloc(job->ctx, SE_LARGE_BYTES + 8 * SE_BYTES, STEPAF_MEM_HOST, &memory)))
        return false;
    rank->memory = memory;
    return job->role == STEPAF_FFN || make_plan(rank, flags);
}

bool se_open_doomed(struct se_rank *rank, stepaf_params_t params, stepaf_group_t group, int index,
                    int *victim_p)
{
    struct hs_job *job = rank->job;

    if (!se_open(rank, params, 1, 0) || !HS_OK(stepaf_commit(job->ctx)))
        return false;
    *victim_p = stepaf_world_rank(job->ctx, group, index);
    hs_doom(job, *victim_p);
    return hs_pause(job);
}

void se_tell(struct hs_job *job, int place)
{
    atomic_store(&job->shared->stamp[place], 1);
}

bool se_is_told(const struct hs_job *job, int place)
{
    return atomic_load(&job->shared->stamp[place]) != 0;
}

void se_await(struct hs_job *job, int place)
{
    while (!se_is_told(job, place) && !hs_failed() && !hs_hopeless(job))
        hs_sleep_us(500);
}

stepaf_status_t se_answer(struct se_rank *rank, stepaf_batch_h batch, uint32_t flags)
{
    const stepaf_tensor_t answer = {SE_PULL, rank->memory, SE_BYTES};

    return stepaf_respond(batch, &answer, 1, flags, NULL);
}

void se_serve(struct se_rank *rank, bool holds)
{
    struct hs_job *job = rank->job;
    stepaf_batch_h kept = NULL;

    while (!se_is_told(job, SE_OVER) && !hs_failed() && !hs_hopeless(job)) {
        stepaf_batch_h batch = NULL;
        int n = 0;
        if (kept && se_is_told(job, SE_GO)) {
            HS_OK(se_answer(rank, kept, STEPAF_RESPOND_RELEASE));
            kept = NULL;
        }
        if (stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, 1000, &batch, 1, &n))
            continue;
        if (holds)
            kept = batch;
        else
            HS_OK(se_answer(rank, batch, STEPAF_RESPOND_RELEASE));
        holds = false;
    }
}

/* ---- operations ---- */

/* Start when the slot is there, with @a push if that is not NULL, and wait. */
static stepaf_request_h exchange(struct se_rank *rank, const stepaf_tensor_t *push)
{
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS |
                                                  (push ? STEPAF_START_PARAM_PUSH : 0),
                                    .flags = STEPAF_START_WAIT,
                                    .push = push,
                                    .n_push = push ? rank->job->ffn : 0};
    stepaf_request_h request = NULL;

    if (HS_OK(stepaf_start_with(rank->plan, &params, &request)))
        HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    return request;
}

/* Operations that are complete with the answer of one rank of two, of which the second is late with
 * the first. False: at FFN ranks, which have served, or after a failure. */
static bool one_is_late(struct se_rank *rank, uint32_t flags)
{
    struct hs_job *job = rank->job;

    if (!se_open(rank, (stepaf_params_t){0}, 1, flags) ||
        (rank->plan && !HS_OK(stepaf_plan_set_answers(rank->plan, 1, 0))) ||
        !HS_OK(stepaf_commit(job->ctx)))
        return false;
    if (job->role == STEPAF_FFN)
        se_serve(rank, job->index == 1);
    return job->role == STEPAF_ATTENTION;
}

static void both_answer_again(struct se_rank *rank, stepaf_request_h request)
{
    se_tell(rank->job, SE_GO);
    HS_OK(stepaf_wait_rest(request, STEPAF_TIMEOUT_DEFAULT));
    HS_OK(stepaf_plan_set_answers(rank->plan, 0, 0));
    for (int i = 0; i < 3; i++)
        exchange(rank, NULL);
    HS_OK(stepaf_plan_destroy(rank->plan));
    se_tell(rank->job, SE_OVER);
}

/* A start with bytes for nobody, in the slot that a rank is late in. */
static void nobody(struct se_rank *rank)
{
    if (!one_is_late(rank, STEPAF_PLAN_SCATTER))
        return;
    const stepaf_tensor_t nothing[] = {{SE_PUSH, rank->memory, 0}, {SE_PUSH, rank->memory, 0}};
    exchange(rank, NULL);
    both_answer_again(rank, exchange(rank, nothing));
}

/* A rank that is late stays slow, also where operations leave it out. */
static void slow(struct se_rank *rank)
{
    stepaf_members_t members = {.size = sizeof members};
    stepaf_member_state_t states[3];
    stepaf_request_h request = NULL;
    int64_t end_ns;

    setenv("STEPAF_SLOW_US", "30000", 1);
    if (!one_is_late(rank, 0))
        return;
    struct hs_job *job = rank->job;
    int late = stepaf_world_rank(job->ctx, STEPAF_GROUP_FFN, 1);
    end_ns = hs_now_ns() + 100000000;
    do {
        request = exchange(rank, NULL);
        hs_sleep_us(1000);
    } while (hs_now_ns() < end_ns);
    HS_OK(stepaf_members_query(job->ctx, &members, states, 3));
    HS_INT(members.n_slow, ==, 1);
    HS_INT(states[late], ==, STEPAF_MEMBER_SLOW);
    both_answer_again(rank, request);
    HS_OK(stepaf_members_query(job->ctx, &members, states, 3));
    HS_INT(states[late], ==, STEPAF_MEMBER_IN);
}

/* ---- an answer that cannot be sent ---- */

/* A large answer is in the way of one whose source is gone meanwhile. */
static void attend_to_large(struct se_rank *rank, const stepaf_plan_h *plans)
{
    stepaf_request_h requests[2];

    for (int i = 0; i < 2; i++)
        HS_OK(stepaf_start(plans[i], &requests[i]));
    se_await(rank->job, SE_GO);
    HS_OK(stepaf_wait(requests[0], STEPAF_TIMEOUT_DEFAULT));
    HS_REFUSED(stepaf_wait(requests[1], STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_CANCELED);
    HS_OK(stepaf_start(plans[1], &requests[1]));
    HS_OK(stepaf_wait(requests[1], STEPAF_TIMEOUT_DEFAULT));
}

static void answer_large(struct se_rank *rank, bool waits_for_any)
{
    const size_t bytes = 65536;
    void *source = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct hs_job *job = rank->job;
    stepaf_batch_h batches[2], next = NULL;
    stepaf_request_h requests[2];
    int n = 0, more = 0, index = -1;

    if (!HS_TRUE(source != MAP_FAILED) || !HS_OK(stepaf_register(job->ctx, source, bytes)))
        return;
    for (; n < 2 && !hs_failed(); n += more)
        HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, batches + n, 2 - n,
                          &more));
    if (hs_failed())
        return;
    const stepaf_tensor_t large = {SE_LARGE, rank->memory, SE_LARGE_BYTES},
                          small = {SE_PULL, source, SE_BYTES};
    HS_OK(stepaf_respond(batches[0], &large, 1, STEPAF_RESPOND_RELEASE, &requests[0]));
    HS_OK(stepaf_respond(batches[1], &small, 1, STEPAF_RESPOND_RELEASE, &requests[1]));
    HS_STATUS(stepaf_request_sent(requests[1]), STEPAF_INPROGRESS);
    mprotect(source, bytes, PROT_NONE); /* were it unmapped, another mapping could take its place */
    se_tell(job, SE_GO);
    if (waits_for_any) {
        HS_REFUSED(stepaf_wait_any(&requests[1], 1, STEPAF_TIMEOUT_DEFAULT, &index),
                   STEPAF_ERR_UNREGISTERED);
        HS_INT(index, ==, 0);
    }
    HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &next, 1, &n));
    if (!waits_for_any)
        HS_REFUSED(stepaf_wait(requests[1], STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_UNREGISTERED);
    HS_OK(se_answer(rank, next, STEPAF_RESPOND_RELEASE));
}

static void refuse(struct se_rank *rank, bool waits_for_any)
{
    struct hs_job *job = rank->job;
    stepaf_plan_h plans[2] = {NULL, NULL};

    setenv("STEPAF_TRANSPORTS", "tcp", 1);
    if (!se_open(rank, (stepaf_params_t){0}, 1, 0) ||
        !HS_OK(stepaf_key_declare(job->ctx, SE_LARGE, STEPAF_PULL, SE_LARGE_BYTES, NULL)) ||
        !HS_OK(stepaf_key_declare(job->ctx, SE_LARGE + 1, STEPAF_PUSH, SE_BYTES, NULL)))
        return;
    if (job->role == STEPAF_ATTENTION) {
        const stepaf_tensor_t push = {SE_LARGE + 1, rank->memory, SE_BYTES},
                              pull = {SE_LARGE, rank->memory + 4 * SE_BYTES, SE_LARGE_BYTES};
        plans[1] = rank->plan;
        if (!HS_OK(stepaf_plan_create(job->ctx, &push, 1, &pull, 1, 0, &plans[0])))
            return;
    }
    if (!HS_OK(stepaf_commit(job->ctx)))
        return;
    if (job->role == STEPAF_ATTENTION)
        attend_to_large(rank, plans);
    else
        answer_large(rank, waits_for_any);
}

static void refused(struct se_rank *rank)
{
    refuse(rank, false);
}

static void refused_any(struct se_rank *rank)
{
    refuse(rank, true);
}

/* ---- whom errors name ---- */

static void names(stepaf_role_t role, int index)
{
    HS_INT(stepaf_last_error()->peer_role, ==, role);
    HS_INT(stepaf_last_error()->peer_rank, ==, index);
}

/* Who holds a batch. */
static void held(struct se_rank *rank)
{
    struct hs_job *job = rank->job;
    stepaf_start_params_t params = {.field_mask =
                                        STEPAF_START_PARAM_FLAGS | STEPAF_START_PARAM_TIMEOUT,
                                    .flags = STEPAF_START_WAIT,
                                    .timeout_us = 20000};
    stepaf_request_h request = NULL;
    stepaf_batch_h batch = NULL;
    int n = 0;

    if (!se_open(rank, (stepaf_params_t){0}, 1, 0) || !HS_OK(stepaf_commit(job->ctx)))
        return;
    if (job->role == STEPAF_FFN) {
        if (!HS_OK(
                stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n)) ||
            !HS_OK(se_answer(rank, batch, 0)) || !hs_sync(job))
            return;
    } else {
        exchange(rank, NULL);
        HS_REFUSED(stepaf_start_with(rank->plan, &params, &request), STEPAF_ERR_TIMEOUT);
        names(STEPAF_FFN, 0);
        HS_REFUSED(stepaf_plan_destroy(rank->plan), STEPAF_ERR_STATE);
        names(STEPAF_FFN, 0);
        if (!hs_sync(job))
            return;
    }
    HS_REFUSED(stepaf_commit(job->ctx), STEPAF_ERR_STATE);
    if (job->role == STEPAF_ATTENTION)
        names(STEPAF_FFN, 0);
    else
        HS_OK(stepaf_release(batch));
}

/* Whose batch has not come, beside one that is lost. */
static void missing(struct se_rank *rank)
{
    struct hs_job *job = rank->job;
    stepaf_batch_h batches[2];
    int n = 0, victim;

    if (!se_open_doomed(rank, (stepaf_params_t){0}, STEPAF_GROUP_ATTENTION, 0, &victim))
        return;
    if (job->role == STEPAF_ATTENTION) {
        se_await(job, SE_OVER);
        return;
    }
    hs_signal(job, victim, SIGKILL);
    HS_REFUSED(stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, STEPAF_TIMEOUT_DEFAULT, batches, 2, &n),
               STEPAF_ERR_PEER_LOST);
    names(STEPAF_ATTENTION, 0);
    HS_REFUSED(
        stepaf_recv(job->ctx, STEPAF_FROM_EACH, STEPAF_RECV_SKIP_LOST, 20000, batches, 2, &n),
        STEPAF_ERR_TIMEOUT);
    names(STEPAF_ATTENTION, 1);
    se_tell(job, SE_OVER);
}

static const struct {
    const char *name;
    int size; /* of the job */
    void (*run)(struct se_rank *rank);
} cases[] = {
    {"nobody", 3, nobody},           {"slow", 3, slow},        {"refused", 2, refused},
    {"refused_any", 2, refused_any}, {"held", 2, held},        {"missing", 3, missing},
    {"deadline", 3, se_deadline},    {"commit", 2, se_commit}, {"members", 3, se_members},
    {"barrier", 4, se_barrier},      {"stop", 2, se_stop},     {"agreement", 4, se_agreement},
};

static void body(struct hs_job *job)
{
    const char *name = hs_option_text(job, "--case", "");
    struct se_rank rank = {.job = job};

    hs_step(name);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, name) == 0) {
            if (job->size != cases[i].size) {
                hs_skip("made for %d ranks", cases[i].size);
                return;
            }
            cases[i].run(&rank);
            if (!job->abandoned)
                (void)(job->ctx ? hs_sync(job) : hs_pause(job));
            return;
        }
    HS_FAILED("no case \"%s\"", name);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "seldom", .options = "--case", .limit_s = 60, .n_boots = 1, .body = body};
    return hs_main(argc, argv, &test);
}
