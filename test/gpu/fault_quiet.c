/* SPDX-License-Identifier: Apache-2.0 */
/* Nobody dies: a rank never answers, or leaves while its own streams wait. */
#include "gpu/fault.h"

enum { OTHERS = 20, FROM = 1000 };

/* This rank's own part of an operation of the first plan. */
static bool take_part(struct gx_plan *plan)
{
    if (plan->job->role == STEPAF_ATTENTION)
        return HS_OK(stepaf_start_on_stream(plan->handle, NULL, plan->stream, NULL)) &&
               HS_OK(stepaf_wait_on_stream(plan->handle, plan->stream));
    return HS_OK(stepaf_recv_on_stream(plan->handle, plan->stream));
}

/* The next commit begins anew, with all plans. */
static void begin_anew(struct fault *fault)
{
    struct hs_job *job = fault->job;

    hs_step("commit again");
    if (!hs_sync(job) || !HS_OK(stepaf_commit(job->ctx)))
        return;
    for (int i = 0; i < FAULT_PLANS; i++) {
        fault->plans[i].done = FROM;
        if (!gx_plan_restart(&fault->plans[i], FROM))
            return;
    }
    if (!hs_sync(job))
        return;
    for (int i = 0; i < FAULT_PLANS; i++)
        fault_exchange(fault, i, OTHERS);
    hs_sync(job);
}

/* The first plan's operation is never completed by the victim; the second plan goes on meanwhile,
 * and afterwards. */
void fault_silent(struct fault *fault)
{
    struct hs_job *job = fault->job;
    struct gx_plan *plan = &fault->plans[0];
    int64_t began = hs_now_ns(), least = fault->timeout_ms * 900000 * hs_slow();

    if (fault_meets(fault) && !take_part(plan))
        return;
    if (!fault_meets(fault) && !fault_is_victim(fault) && job->role == STEPAF_FFN) {
        HS_OK(stepaf_recv_on_stream(plan->handle, plan->stream));
        HS_OK(stepaf_respond_on_stream(plan->handle, NULL, plan->stream));
    }
    if (!fault_exchange(fault, 1, OTHERS))
        return;
    if (fault_meets(fault)) {
        fault_released(plan->stream, began, fault->notice_ms);
        HS_INT(hs_now_ns() - began, >=, least);
        fault_told(fault, plan, STEPAF_ERR_TIMEOUT, hs_now_ns());
    }
    HS_OK(stepaf_plan_status(fault->plans[1].handle));
    if (!hs_sync(job) || !fault_exchange(fault, 1, OTHERS))
        return;
    begin_anew(fault);
}

/* Attention ranks leave while their streams wait; then FFN ranks do. */
void fault_finalize(struct fault *fault)
{
    struct hs_job *job = fault->job;
    bool leaves = job->role != fault->role;
    int64_t began;

    if (leaves && (!take_part(&fault->plans[0]) || !take_part(&fault->plans[1])))
        return;
    hs_sync(job);
    began = hs_now_ns();
    if (leaves) {
        hs_close(job);
        for (int i = 0; i < FAULT_PLANS; i++)
            fault_released(fault->plans[i].stream, began, fault->notice_ms);
    }
    hs_pause(job);
}
