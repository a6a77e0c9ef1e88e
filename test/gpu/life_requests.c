/* SPDX-License-Identifier: Apache-2.0 */
/* The host waits for what a stream has started. */
#include "gpu/life.h"

enum { ROUNDS = 20 };

/* Waited for by the host alone: then all is in place, and any stream may look. */
static bool by_wait(struct gx_plan *plan)
{
    stepaf_request_h request = NULL;

    return HS_OK(gx_start(plan, NULL, &request)) &&
           HS_INT(stepaf_request_slot(request), ==, (plan->n_sent - 1) % plan->shape.depth) &&
           HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)) &&
           HS_OK(stepaf_request_sent(request)) &&
           HS_REFUSED(stepaf_wait(request, 0), STEPAF_ERR_STATE) && gx_look(plan, NULL);
}

static bool by_test(struct gx_plan *plan)
{
    int64_t deadline = hs_now_ns() + 10000000000LL * hs_slow();
    stepaf_request_h request = NULL;
    stepaf_status_t status;

    if (!HS_OK(gx_start(plan, NULL, &request)))
        return false;
    while ((status = stepaf_test(request)) == STEPAF_INPROGRESS && hs_now_ns() < deadline)
        hs_yield();
    return HS_OK(status) && gx_look(plan, NULL);
}

/* By both: the stream first, so that its wait is the one that the request ends with. */
static bool by_both(struct gx_plan *plan)
{
    stepaf_request_h request = NULL;

    return HS_OK(gx_start(plan, NULL, &request)) && HS_OK(gx_wait(plan, NULL)) &&
           HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
}

/* All slots of all plans at once, in the order in which they complete. */
static bool by_any(struct gx_plan *plans)
{
    stepaf_request_h requests[LIFE_PLANS * 3] = {NULL};
    int n = 0, index;

    for (int i = 0; i < LIFE_PLANS; i++)
        for (unsigned k = 0; k < plans[i].shape.depth; k++)
            if (!HS_OK(gx_start(&plans[i], NULL, &requests[n++])))
                return false;
    for (int left = n; left > 0; left--) {
        index = -1;
        if (!HS_OK(stepaf_wait_any(requests, n, STEPAF_TIMEOUT_DEFAULT, &index)) ||
            !HS_INT(index, >=, 0) || !HS_INT(index, <, n))
            return false;
        requests[index] = NULL;
    }
    HS_REFUSED(stepaf_wait_any(requests, n, 0, &index), STEPAF_ERR_STATE);
    for (int i = 0; i < LIFE_PLANS; i++)
        for (unsigned k = 0; k < plans[i].shape.depth; k++)
            if (!gx_look(&plans[i], NULL))
                return false;
    return true;
}

static bool attend(struct gx_plan *plans)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct gx_plan *plan = &plans[round % LIFE_PLANS];
        if (!by_wait(plan) || !by_test(plan) || !by_both(plan) || !by_any(plans))
            return false;
    }
    return true;
}

/* The same operations in the same order. */
static bool serve(struct gx_plan *plans)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < 3; k++)
            if (!gx_exchange(&plans[round % LIFE_PLANS], NULL))
                return false;
        for (int i = 0; i < LIFE_PLANS; i++)
            for (unsigned k = 0; k < plans[i].shape.depth; k++)
                if (!gx_exchange(&plans[i], NULL))
                    return false;
    }
    return true;
}

void life_requests(struct hs_job *job, struct gx_plan *plans)
{
    hs_step("requests");
    if (job->role == STEPAF_ATTENTION ? !attend(plans) : !serve(plans))
        return;
    for (int i = 0; i < LIFE_PLANS; i++) {
        plans[i].done = plans[i].n_sent;
        gx_verify(&plans[i], plans[i].done);
    }
}
