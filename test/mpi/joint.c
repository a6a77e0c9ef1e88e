/* SPDX-License-Identifier: Apache-2.0 */
/* Both roles in one process: two contexts over the same ranks, and what a rank is in one it is not
 * in the other. Each is driven by its own calls. One can be left while the other goes on. */
#include "fixture.h"

enum { IDS = 2, DEPTH = 2 };

/* What a process does as attention rank and as FFN rank, each in a context of its own. */
struct joint {
    struct hs_job *attention, *ffn;
    struct fx_plan plans[IDS];
    stepaf_request_h requests[IDS]; /* NULL: none is in flight */
    int left;                       /* operations to start */
    int expected;                   /* batches to answer */
};

/* Join as one or the other; the roles of all ranks are exchanged in context number 1. */
static bool join(struct hs_job *job, int number, struct hs_job *side)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE,
                              .role = (job->rank + number) % 2 ? STEPAF_FFN : STEPAF_ATTENTION};

    if (number == 0) {
        if (!hs_open_with(job, params))
            return false;
        *side = *job;
    } else {
        *side = *job;
        if (!HS_OK(hs_init(job, number, &params, &side->ctx)))
            return false;
        side->role = stepaf_role(side->ctx);
        side->attn = stepaf_size(side->ctx, STEPAF_GROUP_ATTENTION);
        side->ffn = stepaf_size(side->ctx, STEPAF_GROUP_FFN);
        side->index = stepaf_rank(side->ctx, side->role == STEPAF_FFN ? STEPAF_GROUP_FFN
                                                                      : STEPAF_GROUP_ATTENTION);
        side->peers = stepaf_n_peers(side->ctx);
    }
    return HS_INT(side->role, ==, params.role) && HS_INT(side->attn + side->ffn, ==, job->size);
}

/* One look at the operation of plan @a id: start it, or see whether it is complete. */
static bool attend(struct joint *joint, int id)
{
    struct fx_plan *plan = &joint->plans[id];
    stepaf_request_h *request = &joint->requests[id];
    stepaf_status_t status;

    if (*request == NULL && joint->left > 0) {
        status = fx_start(plan, 0, request);
        if (status == STEPAF_ERR_WOULD_BLOCK) /* the receive buffers are to come back yet */
            return true;
        joint->left--;
        return HS_STATUS(status, STEPAF_OK);
    }
    if (*request == NULL)
        return true;
    status = stepaf_test(*request);
    if (status == STEPAF_INPROGRESS)
        return true;
    *request = NULL;
    return HS_STATUS(status, STEPAF_OK) && fx_verify(plan, plan->next - 1, -1);
}

/* One look for a batch. */
static bool serve(struct joint *joint)
{
    stepaf_batch_h batch = NULL;
    int got = 0;
    stepaf_status_t status = stepaf_recv(joint->ffn->ctx, STEPAF_FROM_ANY, 0, 0, &batch, 1, &got);

    if (status == STEPAF_ERR_TIMEOUT)
        return true;
    joint->expected--;
    return HS_STATUS(status, STEPAF_OK) && fx_look(joint->ffn, batch) &&
           HS_OK(fx_answer(joint->ffn, batch, STEPAF_RESPOND_RELEASE));
}

static bool in_flight(const struct joint *joint)
{
    for (int id = 0; id < IDS; id++)
        if (joint->requests[id] != NULL)
            return true;
    return false;
}

/* Both at once: no call waits, since its context alone would advance. */
static bool both(struct joint *joint, int ops)
{
    hs_step("both");
    joint->left = ops;
    joint->expected = ops * joint->ffn->peers;
    while (joint->left > 0 || in_flight(joint) || joint->expected > 0) {
        for (int id = 0; id < IDS; id++)
            if (!attend(joint, id))
                return false;
        if (!serve(joint) || hs_hopeless(joint->ffn))
            return false;
        hs_yield();
    }
    return hs_sync(joint->ffn) && HS_INT(joint->expected, ==, 0);
}

/* The one context that is left has usual ranks. */
static bool one(struct joint *joint, struct hs_job *side, int ops)
{
    hs_step("one");
    if (side == joint->ffn)
        return fx_serve(side, ops * side->peers) && hs_sync(side);
    for (int i = 0; i < ops; i++)
        if (!fx_exchange(&joint->plans[i % IDS]))
            return false;
    return hs_sync(side);
}

static void body(struct hs_job *job)
{
    int ops = (int)hs_option_int(job, "--ops", 100);
    size_t bytes = (size_t)hs_option_int(job, "--bytes", 5000);
    struct joint joint = {0};
    struct hs_job sides[2] = {0};
    bool good = true;

    for (int number = 0; number < 2 && good; number++) {
        good = join(job, number, &sides[number]);
        if (sides[number].role == STEPAF_ATTENTION)
            joint.attention = &sides[number];
        else
            joint.ffn = &sides[number];
    }
    for (int number = 0; number < 2 && good; number++)
        good = fx_open(&sides[number], IDS, bytes, DEPTH, FX_BOTH, joint.plans);
    good = good && both(&joint, ops) && hs_pause(job);
    if (sides[1].ctx != job->ctx)
        stepaf_finalize(sides[1].ctx);
    if (good && hs_pause(job))
        one(&joint, &sides[0], ops);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "joint", .options = "--ops --bytes", .limit_s = 60, .n_boots = 2, .body = body};
    return hs_main(argc, argv, &test);
}
