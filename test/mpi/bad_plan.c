/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input: plans, starts, one-shot calls and requests, at the attention ranks. */
#include "bad_input.h"

#include <string.h>

/* A good push_pull, to be spoiled one field at a time. */
static struct {
    stepaf_tensor_t push[STEPAF_MAX_TENSORS + 1], pull[HS_MAX_RANKS * (STEPAF_MAX_TENSORS + 1)];
    int n_push, n_pull;
    uint32_t flags;
} attempt;

static unsigned char stranger[4 * BYTES];

static void make_good(struct hs_job *job)
{
    attempt.n_push = 2;
    attempt.n_pull = job->ffn;
    attempt.flags = 0;
    for (int i = 0; i <= STEPAF_MAX_TENSORS; i++)
        attempt.push[i] =
            (stepaf_tensor_t){PUSH + (i == 1 ? SPARE : WHOLE), bad_plans[WHOLE].source, BYTES};
    for (int f = 0; f < HS_MAX_RANKS * (STEPAF_MAX_TENSORS + 1); f++)
        attempt.pull[f] = (stepaf_tensor_t){
            PULL + WHOLE, bad_plans[WHOLE].target + (f < job->ffn ? f : 0) * BYTES, BYTES};
}

/* Neither as a plan nor as a one-shot call. */
static void refuse(struct hs_job *job, stepaf_status_t want, int line)
{
    stepaf_request_h request = NULL;
    stepaf_plan_h plan = NULL;
    bool good = HS_REFUSED(stepaf_plan_create(job->ctx, attempt.push, attempt.n_push, attempt.pull,
                                              attempt.n_pull, attempt.flags, &plan),
                           want) &&
                HS_TRUE(plan == NULL);

    if (attempt.flags == 0)
        good = HS_REFUSED(stepaf_push_pull(job->ctx, attempt.push, attempt.n_push, attempt.pull,
                                           attempt.n_pull, &request),
                          want) &&
               HS_TRUE(request == NULL) && good;
    if (!good)
        HS_FAILED("plan of line %d", line);
    make_good(job);
}

/* Spoil the plan by an assignment and see it refused. */
#define REFUSE(spoil_, want_)           \
    do {                                \
        spoil_;                         \
        refuse(job, (want_), __LINE__); \
    } while (0)

void bad_plan(struct hs_job *job)
{
    struct bad_state state;
    stepaf_plan_h plan = NULL;

    if (is_ffn(job))
        return;
    make_good(job);
    bad_remember(job, &state);
    REFUSE(attempt.push[0].key = NO_KEY, STEPAF_ERR_KEY);
    REFUSE(attempt.pull[1].key = NO_KEY, STEPAF_ERR_KEY);
    REFUSE(attempt.push[0].bytes = BYTES + 1, STEPAF_ERR_SIZE);
    REFUSE(attempt.push[0].bytes = SIZE_MAX, STEPAF_ERR_SIZE);
    REFUSE(attempt.pull[0].bytes = BYTES + 1, STEPAF_ERR_SIZE);
    REFUSE(attempt.push[0].data = stranger, STEPAF_ERR_UNREGISTERED);
    REFUSE(attempt.push[1].data = NULL, STEPAF_ERR_UNREGISTERED);
    REFUSE(attempt.pull[1].data = stranger, STEPAF_ERR_UNREGISTERED);
    REFUSE(attempt.pull[1].data = NULL, STEPAF_ERR_UNREGISTERED);
    /* One byte beyond the page that the allocation fills. */
    REFUSE(attempt.push[0].data = bad_plans[WHOLE].source + 4096 - BYTES + 1,
           STEPAF_ERR_UNREGISTERED);
    /* The second slot would lie beyond it: the plan has two. */
    REFUSE((attempt.n_push = 0, attempt.pull[0].key = PULL + DEEP,
            attempt.pull[1].key = PULL + DEEP, attempt.n_pull = 2,
            attempt.pull[1].data = bad_plans[WHOLE].target + 4096 - BYTES),
           job->ffn == 2 ? STEPAF_ERR_UNREGISTERED : STEPAF_ERR_PULLS);
    REFUSE(attempt.n_pull = job->ffn - 1, STEPAF_ERR_PULLS);
    REFUSE(attempt.n_pull = job->ffn + 1, STEPAF_ERR_PULLS);
    REFUSE(attempt.n_pull = 1, STEPAF_ERR_PULLS);
    REFUSE((attempt.n_push = 0, attempt.n_pull = 0), STEPAF_ERR_INVALID);
    REFUSE(attempt.n_push = -1, STEPAF_ERR_INVALID);
    REFUSE(attempt.n_pull = -job->ffn, STEPAF_ERR_INVALID);
    REFUSE(attempt.n_push = STEPAF_MAX_TENSORS + 1, STEPAF_ERR_INVALID);
    REFUSE(attempt.n_pull = job->ffn * (STEPAF_MAX_TENSORS + 1), STEPAF_ERR_INVALID);
    REFUSE(attempt.push[1] = attempt.push[0], STEPAF_ERR_INVALID); /* a key twice */
    REFUSE(attempt.pull[1].data = attempt.pull[0].data,
           STEPAF_ERR_INVALID); /* the same place twice */
    REFUSE(attempt.pull[1].data = bad_plans[WHOLE].target + 1, STEPAF_ERR_INVALID);
    REFUSE(attempt.push[0].key = PULL + WHOLE, STEPAF_ERR_INVALID); /* the wrong way */
    REFUSE(attempt.pull[0].key = PUSH + WHOLE, STEPAF_ERR_INVALID);
    REFUSE(attempt.flags = 1u << 2, STEPAF_ERR_INVALID);
    REFUSE(attempt.flags = STEPAF_PLAN_STREAM, STEPAF_ERR_UNSUPPORTED); /* host memory */
    REFUSE(attempt.flags = 1u << 31, STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_plan_create(job->ctx, NULL, 1, NULL, 0, 0, &plan), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_plan_create(job->ctx, NULL, 0, NULL, job->ffn, 0, &plan), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_plan_create(job->ctx, attempt.push, 1, NULL, 0, 0, NULL), STEPAF_ERR_INVALID);
    HS_TRUE(plan == NULL);
    bad_unchanged(job, &state, "plans");
}

static void refuse_start(const struct fx_plan *plan, stepaf_start_params_t params,
                         stepaf_status_t want, int line)
{
    stepaf_request_h request = NULL;

    if (!HS_REFUSED(stepaf_start_with(plan->handle, &params, &request), want) ||
        !HS_TRUE(request == NULL))
        HS_FAILED("start of line %d", line);
}

#define REFUSE_START(want_, ...) \
    refuse_start(plan, (stepaf_start_params_t){__VA_ARGS__}, (want_), __LINE__)

void bad_start(struct hs_job *job)
{
    const struct fx_plan *plan = &bad_plans[WHOLE];
    stepaf_tensor_t push = {PUSH + WHOLE, plan->source, BYTES}, other;
    struct bad_state state;

    if (is_ffn(job))
        return;
    bad_remember(job, &state);
    REFUSE_START(STEPAF_ERR_INVALID, .field_mask = STEPAF_START_PARAM_ALL + 1u);
    REFUSE_START(STEPAF_ERR_INVALID, .field_mask = 1ull << 63);
    REFUSE_START(STEPAF_ERR_INVALID, .field_mask = STEPAF_START_PARAM_ANSWERS, .n_answers = -1);
    REFUSE_START(STEPAF_ERR_INVALID, .field_mask = STEPAF_START_PARAM_ANSWERS,
                 .n_answers = job->peers + 1);
    REFUSE_START(STEPAF_ERR_INVALID, .field_mask = STEPAF_START_PARAM_PATIENCE, .patience_us = -1);
    REFUSE_START(STEPAF_ERR_INVALID, .field_mask = STEPAF_START_PARAM_FLAGS, .flags = 1u << 2);
    REFUSE_START(STEPAF_ERR_INVALID, .field_mask = STEPAF_START_PARAM_FLAGS, .flags = 1u << 31);
    REFUSE_START(STEPAF_ERR_INVALID, .field_mask = STEPAF_START_PARAM_PUSH, .push = &push,
                 .n_push = 0);
    REFUSE_START(STEPAF_ERR_INVALID, .field_mask = STEPAF_START_PARAM_PUSH, .push = &push,
                 .n_push = 2);
    REFUSE_START(STEPAF_ERR_INVALID, .field_mask = STEPAF_START_PARAM_PUSH, .push = &push,
                 .n_push = -1);
    other = push, other.key = PUSH + SPARE;
    REFUSE_START(STEPAF_ERR_INVALID, .field_mask = STEPAF_START_PARAM_PUSH, .push = &other,
                 .n_push = 1);
    other = push, other.bytes = BYTES + 1;
    REFUSE_START(STEPAF_ERR_SIZE, .field_mask = STEPAF_START_PARAM_PUSH, .push = &other,
                 .n_push = 1);
    other = push, other.data = stranger;
    REFUSE_START(STEPAF_ERR_UNREGISTERED, .field_mask = STEPAF_START_PARAM_PUSH, .push = &other,
                 .n_push = 1);
    other = push, other.data = NULL;
    REFUSE_START(STEPAF_ERR_UNREGISTERED, .field_mask = STEPAF_START_PARAM_PUSH, .push = &other,
                 .n_push = 1);
    other = push, other.data = plan->source + 4096 - BYTES + 1;
    REFUSE_START(STEPAF_ERR_UNREGISTERED, .field_mask = STEPAF_START_PARAM_PUSH, .push = &other,
                 .n_push = 1);
    HS_REFUSED(stepaf_start(plan->handle, NULL), STEPAF_ERR_INVALID);
    bad_unchanged(job, &state, "starts");
}

void bad_request(struct hs_job *job)
{
    struct fx_plan *plan = &bad_plans[WHOLE];
    stepaf_request_h request = NULL, requests[2] = {NULL};
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    struct bad_state state;
    int index = -9;

    if (is_ffn(job)) {
        fx_serve(job, job->attn);
        return;
    }
    if (!HS_OK(fx_start(plan, STEPAF_START_WAIT, &request)))
        return;
    HS_REFUSED(stepaf_request_tensor(request, -1, &info), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_request_tensor(request, job->ffn, &info), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_request_peer(request, -1), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_request_peer(request, job->ffn), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_timeline_query(request, 0, NULL), STEPAF_ERR_INVALID);
    HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    fx_verify(plan, plan->next - 1, -1);
    bad_remember(job, &state);
    HS_REFUSED(stepaf_wait(request, 0), STEPAF_ERR_STATE);
    HS_REFUSED(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_STATE);
    HS_REFUSED(stepaf_test(request), STEPAF_ERR_STATE);
    HS_REFUSED(stepaf_cancel(request), STEPAF_ERR_STATE);
    requests[0] = request;
    HS_REFUSED(stepaf_wait_any(requests, 2, 0, &index), STEPAF_ERR_STATE);
    HS_REFUSED(stepaf_wait_any(requests, -1, 0, &index), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_wait_any(NULL, 2, 0, &index), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_wait_any(requests, 2, 0, NULL), STEPAF_ERR_INVALID);
    HS_INT(index, ==, -9);
    bad_unchanged(job, &state, "requests");
}
