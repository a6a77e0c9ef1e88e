/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are complete with some of their answers: the cases, at the attention rank. */
#include "answers.h"

enum { LAST = A_FFN - 1, ALL = (1 << A_FFN) - 1, OTHERS = ALL & ~(1 << LAST) };

/* Start with what is left of the slots, and wait. */
static stepaf_request_h exchange(struct fx_plan *plan, unsigned mask)
{
    stepaf_request_h request = NULL;

    HS_OK(fx_start(plan, 0, &request));
    HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    HS_INT(ans_mask(plan, request, plan->next - 1), ==, mask);
    return request;
}

static void check_owing(stepaf_request_h request, int ffn)
{
    if (HS_REFUSED(stepaf_wait_rest(request, A_SHORT_US), STEPAF_ERR_TIMEOUT)) {
        HS_INT(stepaf_last_error()->peer_role, ==, STEPAF_FFN);
        HS_INT(stepaf_last_error()->peer_rank, ==, ffn);
    }
    HS_STATUS(stepaf_wait_rest(request, 0), STEPAF_ERR_TIMEOUT);
}

/* One rank keeps all it gets, for longer than a sequence of 10 bits lasts. */
void ans_late(struct fx_plan *plan)
{
    struct hs_job *job = plan->job;
    stepaf_request_h request = NULL;
    long ops = hs_option_int(job, "--ops", 1200);

    ans_hold(job, LAST, INT64_MAX);
    HS_OK(stepaf_plan_set_answers(plan->handle, LAST, 0));
    for (int i = 0; i < A_DEPTH; i++) {
        request = exchange(plan, OTHERS);
        HS_STATUS(stepaf_request_peer(request, LAST), STEPAF_INPROGRESS);
        HS_STATUS(stepaf_request_tensor(request, LAST, NULL), STEPAF_INPROGRESS);
    }
    HS_INT(ans_counters(job).left_out, ==, 0);
    for (long i = A_DEPTH; i < ops && !hs_failed(); i++) {
        request = exchange(plan, OTHERS);
        HS_REFUSED(stepaf_request_peer(request, LAST), STEPAF_ERR_WOULD_BLOCK);
        HS_INT(stepaf_last_error()->peer_rank, ==, LAST);
    }
    check_owing(request, LAST);
    HS_REFUSED(stepaf_plan_destroy(plan->handle), STEPAF_ERR_STATE);
    HS_INT(ans_counters(job).left_out, ==, ops - A_DEPTH);
    HS_INT(ans_counters(job).incomplete, ==, A_DEPTH); /* the others were sent to three */
    HS_INT(ans_counters(job).late, ==, 0);
    HS_INT(ans_counters(job).operations_completed, ==, ops);
    plan->n_answers = A_FFN; /* all: the slot is not free for that */
    HS_REFUSED(fx_start(plan, 0, &request), STEPAF_ERR_WOULD_BLOCK);
    ans_hold(job, LAST, 0);
    for (int s = 0; s < A_DEPTH; s++)
        HS_OK(stepaf_wait_rest(plan->last[s], STEPAF_TIMEOUT_DEFAULT));
    HS_INT(ans_counters(job).late, ==, A_DEPTH);
    for (uint32_t s = 0; s < A_DEPTH; s++)
        fx_verify(plan, s, LAST); /* they have landed where they always would */
    for (int i = 0; i < 2 * A_DEPTH; i++)
        exchange(plan, ALL);
    HS_INT(ans_counters(job).dropped_stale, ==, 0);
    HS_OK(stepaf_plan_destroy(plan->handle));
}

/* Too few answer, then enough; the operation that is canceled leaves its answers behind as well. */
void ans_few(struct fx_plan *plan)
{
    struct hs_job *job = plan->job;
    stepaf_request_h request = NULL;

    plan->n_answers = LAST;
    ans_hold(job, LAST, INT64_MAX);
    ans_hold(job, LAST - 1, INT64_MAX);
    HS_OK(fx_start(plan, 0, &request));
    HS_REFUSED(stepaf_wait(request, A_SHORT_US), STEPAF_ERR_TIMEOUT);
    ans_becomes(plan, request, OTHERS & ~(1 << (LAST - 1)));
    HS_STATUS(stepaf_test(request), STEPAF_INPROGRESS);
    ans_hold(job, LAST - 1, 0);
    HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    HS_INT(ans_mask(plan, request, plan->next - 1), ==, OTHERS);
    ans_hold(job, LAST, 0);
    ans_becomes(plan, request, ALL); /* a late answer, with the request still valid */
    HS_OK(stepaf_wait_rest(request, STEPAF_TIMEOUT_DEFAULT));
    HS_INT(ans_counters(job).late, ==, 1);

    ans_hold(job, LAST, INT64_MAX);
    ans_hold(job, LAST - 1, INT64_MAX);
    HS_OK(fx_start(plan, 0, &request));
    HS_REFUSED(stepaf_wait(request, A_SHORT_US), STEPAF_ERR_TIMEOUT);
    HS_OK(stepaf_cancel(request));
    HS_REFUSED(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_CANCELED);
    check_owing(request, LAST - 1);
    ans_hold(job, LAST, 0);
    ans_hold(job, LAST - 1, 0);
    plan->n_answers = 0;
    HS_OK(stepaf_wait_rest(request, STEPAF_TIMEOUT_DEFAULT));
    for (int i = 0; i < 2 * A_DEPTH; i++)
        exchange(plan, ALL);
}

/* It waits for all for a time. */
void ans_patience(struct fx_plan *plan)
{
    const int64_t ages_us = 20000000LL * hs_slow();
    struct hs_job *job = plan->job;
    stepaf_request_h request = NULL, other = NULL;
    int64_t began = hs_now_ns();
    int index = -1;

    HS_OK(stepaf_plan_set_answers(plan->handle, 1, ages_us));
    exchange(plan, ALL);
    ans_hold(job, LAST, hs_now_ns() + A_SHORT_US * 1000LL); /* late, but in time */
    exchange(plan, ALL);
    HS_INT(ans_counters(job).incomplete, ==, 0);

    HS_OK(stepaf_plan_set_answers(plan->handle, LAST, A_SHORT_US));
    ans_hold(job, LAST, INT64_MAX);
    began = hs_now_ns();
    request = exchange(plan, OTHERS);
    HS_INT((hs_now_ns() - began) / 1000, >=, A_SHORT_US);
    HS_OK(fx_start(plan, 0,
                   &other)); /* the same, noticed by tests and by a wait for any of several */
    while (stepaf_test(other) == STEPAF_INPROGRESS && hs_now_ns() - began < ages_us * 1000)
        hs_yield();
    HS_INT(ans_mask(plan, other, plan->next - 1), ==, OTHERS);
    HS_OK(fx_start(plan, STEPAF_START_WAIT, &request));
    HS_OK(stepaf_wait_any(&request, 1, STEPAF_TIMEOUT_DEFAULT, &index));
    HS_INT(index, ==, 0);
    /* And by the start that needs the slot: nobody has waited for what it is about. */
    for (int i = 0; i < A_DEPTH + 1; i++)
        HS_OK(fx_start(plan, STEPAF_START_WAIT, &request));
    HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    HS_INT(ans_counters(job).incomplete, >=, 2);
    plan->patience_us = ages_us; /* of one start */
    ans_hold(job, LAST, 0);
    for (int s = 0; s < A_DEPTH; s++)
        HS_OK(stepaf_wait_rest(plan->last[s], STEPAF_TIMEOUT_DEFAULT));
    exchange(plan, ALL);
}

/* Batches are released without an answer. */
void ans_dropped(struct fx_plan *plan)
{
    struct hs_job *job = plan->job;
    stepaf_request_h request = NULL;

    plan->n_answers = LAST;
    ans_drop(job, LAST);
    ans_hold(job, 0, INT64_MAX); /* so that it is not complete before */
    HS_OK(fx_start(plan, 0, &request));
    HS_REFUSED(stepaf_wait_peer(request, LAST, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_CANCELED);
    HS_STATUS(stepaf_test(request), STEPAF_INPROGRESS);
    ans_hold(job, 0, 0);
    HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    HS_OK(stepaf_wait_rest(request, STEPAF_TIMEOUT_DEFAULT));
    HS_INT(ans_mask(plan, request, plan->next - 1), ==, OTHERS);
    HS_REFUSED(stepaf_request_peer(request, LAST), STEPAF_ERR_CANCELED);
    ans_drop(job, LAST);
    ans_drop(job, 0);
    HS_OK(fx_start(plan, 0, &request));
    HS_REFUSED(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_CANCELED);
    HS_OK(stepaf_wait_rest(request, STEPAF_TIMEOUT_DEFAULT));
    plan->n_answers = 0;
    for (int i = 0; i < 2 * A_DEPTH; i++)
        exchange(plan, ALL);
}

void ans_refused(struct fx_plan *plan)
{
    stepaf_request_h request = NULL;
    uint64_t mask = HS_POISON;

    HS_REFUSED(stepaf_plan_set_answers(plan->handle, -1, 0), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_plan_set_answers(plan->handle, A_FFN + 1, 0), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_plan_set_answers(plan->handle, 1, -1), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_plan_set_answers(NULL, 1, 0), STEPAF_ERR_HANDLE);
    plan->n_answers = A_FFN + 1;
    HS_REFUSED(fx_start(plan, 0, &request), STEPAF_ERR_INVALID);
    plan->n_answers = 0;
    exchange(plan, ALL);
    request = plan->last[0];
    HS_REFUSED(stepaf_request_answers(request, NULL, 1), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_request_answers(request, &mask, 0), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_request_answers(NULL, &mask, 1), STEPAF_ERR_HANDLE);
    HS_REFUSED(stepaf_wait_rest(NULL, 0), STEPAF_ERR_HANDLE);
    HS_INT(mask, ==, HS_POISON);
    HS_OK(stepaf_plan_set_answers(plan->handle, A_FFN, 0));
    HS_OK(stepaf_plan_set_answers(plan->handle, 0, 0));
    exchange(plan, ALL);
}

/* One peer or tensor is waited for, in an operation that needs all. */
void ans_parts(struct fx_plan *plan)
{
    struct hs_job *job = plan->job;
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_request_h request = NULL;

    ans_hold(job, LAST, INT64_MAX);
    HS_OK(fx_start(plan, 0, &request));
    for (int f = 0; f < LAST; f++) {
        HS_OK(stepaf_wait_peer(request, f, STEPAF_TIMEOUT_DEFAULT));
        HS_OK(stepaf_wait_tensor(request, f, STEPAF_TIMEOUT_DEFAULT));
        HS_OK(stepaf_request_tensor(request, f, &info));
        fx_verify(plan, plan->next - 1, f);
    }
    if (HS_REFUSED(stepaf_wait_peer(request, LAST, A_SHORT_US), STEPAF_ERR_TIMEOUT))
        HS_INT(stepaf_last_error()->peer_rank, ==, LAST);
    HS_REFUSED(stepaf_wait_tensor(request, LAST, A_SHORT_US), STEPAF_ERR_TIMEOUT);
    HS_STATUS(stepaf_wait_tensor(request, LAST, 0), STEPAF_ERR_TIMEOUT);
    HS_STATUS(stepaf_test(request), STEPAF_INPROGRESS);
    HS_REFUSED(stepaf_wait_peer(request, A_FFN, 0), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_wait_peer(request, -1, 0), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_wait_tensor(request, A_FFN, 0), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_wait_tensor(request, -1, 0), STEPAF_ERR_INVALID);
    ans_hold(job, LAST, 0);
    HS_OK(stepaf_wait_tensor(request, LAST, STEPAF_TIMEOUT_DEFAULT));
    fx_verify(plan, plan->next - 1, LAST);
    HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    HS_OK(stepaf_wait_peer(request, LAST, 0)); /* also after it */
    ans_drop(job, LAST);
    HS_OK(fx_start(plan, 0, &request));
    HS_REFUSED(stepaf_wait_peer(request, LAST, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_CANCELED);
    HS_REFUSED(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_CANCELED);
}

/* A rank is stopped, and goes on. The others have some patience: without, one that is a little late
 * is left out, and beside the one that is stopped too few would be left. */
void ans_stopped(struct fx_plan *plan)
{
    struct hs_job *job = plan->job;
    int world = stepaf_world_rank(job->ctx, STEPAF_GROUP_FFN, LAST);
    int64_t until;

    HS_OK(stepaf_plan_set_answers(plan->handle, LAST, A_SHORT_US));
    for (int i = 0; i < 100; i++)
        HS_OK(fx_start(plan, STEPAF_START_WAIT, &plan->last[plan->next % A_DEPTH]));
    /* What is under way when one is stopped needs all others: of these none may have been left
     * out. */
    for (int s = 0; s < A_DEPTH; s++)
        HS_OK(stepaf_wait_rest(plan->last[s], STEPAF_TIMEOUT_DEFAULT));
    for (int i = 0; i < A_DEPTH; i++)
        HS_OK(fx_start(plan, STEPAF_START_WAIT, &plan->last[plan->next % A_DEPTH]));
    hs_signal(job, world, SIGSTOP);
    for (int s = 0; s < A_DEPTH; s++)
        HS_OK(stepaf_wait(plan->last[s], STEPAF_TIMEOUT_DEFAULT));
    until = hs_now_ns() + 200000000;
    for (int i = 0; (i < 2 * A_DEPTH || hs_now_ns() < until) && !hs_failed(); i++) {
        stepaf_request_h request = NULL;
        HS_OK(fx_start(plan, STEPAF_START_WAIT, &request));
        HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
        HS_INT(ans_mask(plan, request, plan->next - 1) & OTHERS, ==, OTHERS);
        plan->last[(plan->next - 1) % A_DEPTH] = request;
    }
    check_owing(plan->last[0], LAST);
    HS_INT(ans_counters(job).left_out, >, 0);
    HS_INT(ans_counters(job).peers_lost, ==, 0); /* slow is not lost */
    hs_signal(job, world, SIGCONT);
    plan->n_answers = A_FFN;
    for (int s = 0; s < A_DEPTH; s++)
        HS_OK(stepaf_wait_rest(plan->last[s], STEPAF_TIMEOUT_DEFAULT));
    for (int i = 0; i < 2 * A_DEPTH; i++)
        exchange(plan, ALL);
}

/* A rank is lost that owes: it is given up, and the others go on as long as they are enough. */
void ans_killed(struct fx_plan *plan)
{
    struct hs_job *job = plan->job;
    stepaf_request_h request = NULL, late = NULL;

    HS_OK(stepaf_plan_set_answers(plan->handle, LAST, 0));
    ans_hold(job, LAST, INT64_MAX);
    for (int i = 0; i < A_DEPTH + 1; i++)
        late = exchange(plan, OTHERS);
    HS_OK(stepaf_plan_set_answers(plan->handle, LAST, 20000000));
    ans_hold(job, 0, INT64_MAX);
    HS_OK(fx_start(plan, 0, &request)); /* lost while it waits */
    hs_signal(job, stepaf_world_rank(job->ctx, STEPAF_GROUP_FFN, LAST), SIGKILL);
    HS_OK(stepaf_wait_rest(late, STEPAF_TIMEOUT_DEFAULT));
    ans_hold(job, 0, 0);
    HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    HS_INT(ans_mask(plan, request, plan->next - 1), ==, OTHERS);
    HS_INT(ans_counters(job).peers_lost, ==, 1);
    for (int i = 0; i < 3 * A_DEPTH; i++) {
        request = exchange(plan, OTHERS);
        HS_REFUSED(stepaf_request_peer(request, LAST), STEPAF_ERR_PEER_LOST);
    }
    plan->n_answers = A_FFN;
    HS_REFUSED(fx_start(plan, 0, &request), STEPAF_ERR_PEER_LOST);
}
