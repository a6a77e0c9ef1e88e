/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input: plans that cannot be, and plans without their like on the other side. */
#include "gpu/bad.h"

#include <stdio.h>
#include <string.h>

enum { BYTES = 4096, ID = 5 };

/* One try to make a plan that is refused. */
static void refuse_plan(struct hs_job *job, const stepaf_tensor_t *push, int n_push,
                        const stepaf_tensor_t *pull, int n_pull, uint32_t flags,
                        stepaf_status_t want)
{
    stepaf_plan_h plan = NULL;

    HS_REFUSED(gx_plan_create(job->ctx, push, n_push, pull, n_pull, flags, &plan), want);
    HS_TRUE(plan == NULL);
}

void bad_plans(struct hs_job *job)
{
    stepaf_tensor_t push[GX_TENSORS], pull[GX_PEERS * GX_TENSORS], bad;
    bool attention = job->role == STEPAF_ATTENTION;
    int n_push = bad_plan.shape.n_push, n_pull;

    gx_plan_tensors(&bad_plan, push, pull, &n_pull);
    refuse_plan(job, push, n_push, pull, n_pull, STEPAF_PLAN_STREAM | 1u << 31, STEPAF_ERR_INVALID);
    refuse_plan(job, NULL, 0, NULL, 0, STEPAF_PLAN_STREAM, STEPAF_ERR_INVALID);
    if (job->peers > 1) /* some would have nowhere to answer */
        refuse_plan(job, push, n_push, pull, n_pull - 1, STEPAF_PLAN_STREAM, STEPAF_ERR_PULLS);
    bad = push[0];
    push[0].key = gx_key(ID, 0, 9); /* not declared */
    refuse_plan(job, push, n_push, pull, n_pull, STEPAF_PLAN_STREAM, STEPAF_ERR_KEY);
    push[0] = bad;
    if (attention) {
        push[0].bytes++;
        refuse_plan(job, push, n_push, pull, n_pull, STEPAF_PLAN_STREAM, STEPAF_ERR_SIZE);
        push[0] = bad;
    }
    bad = pull[0];
    pull[0].bytes++;
    refuse_plan(job, push, n_push, pull, n_pull, STEPAF_PLAN_STREAM, STEPAF_ERR_SIZE);
    pull[0] = bad;
    pull[0].data = bad_plan.tally; /* not registered */
    refuse_plan(job, push, n_push, pull, n_pull, STEPAF_PLAN_STREAM, STEPAF_ERR_UNREGISTERED);
    pull[0] = bad;
    stepaf_plan_h plan = NULL;
    if (!attention) { /* without a stream an FFN rank has no plans */
        refuse_plan(job, push, n_push, pull, n_pull, 0, STEPAF_ERR_INVALID);
        HS_REFUSED(
            stepaf_plan_create(job->ctx, push, n_push, pull, n_pull, STEPAF_PLAN_STREAM, &plan),
            STEPAF_ERR_ROLE);
    } else {
        HS_REFUSED(stepaf_plan_create_ffn(job->ctx, &push[0].key, 1, pull, n_pull,
                                          STEPAF_PLAN_STREAM, &plan),
                   STEPAF_ERR_ROLE);
    }
}

/* Sources may be anywhere; what is received into is of the key's kind. */
void bad_kinds(struct hs_job *job)
{
    stepaf_tensor_t push[GX_TENSORS], pull[GX_PEERS * GX_TENSORS], good;
    bool attention = job->role == STEPAF_ATTENTION;
    int n_push = bad_plan.shape.n_push, n_pull;
    stepaf_tensor_t *source = attention ? &push[0] : &pull[0];
    stepaf_plan_h plan = NULL;
    void *memory = NULL;

    if (!HS_OK(stepaf_alloc(job->ctx, 64 * BYTES, STEPAF_MEM_HOST, &memory)))
        return;
    gx_plan_tensors(&bad_plan, push, pull, &n_pull);
    good = *source;
    source->data = memory;
    HS_OK(gx_plan_create(job->ctx, push, n_push, pull, n_pull, STEPAF_PLAN_STREAM, &plan));
    HS_OK(stepaf_plan_destroy(plan));
    *source = good;
    if (attention) {
        /* By bounce buffers. */
        HS_OK(stepaf_plan_create(job->ctx, push, n_push, pull, n_pull, 0, &plan));
        HS_OK(stepaf_plan_destroy(plan));
        good = pull[0];
        pull[0].data = memory;
        refuse_plan(job, push, n_push, pull, n_pull, STEPAF_PLAN_STREAM, STEPAF_ERR_UNSUPPORTED);
        pull[0] = good;
    }
    /* Nothing to wait for on one side. */
    refuse_plan(job, push, n_push, NULL, 0, STEPAF_PLAN_STREAM, STEPAF_ERR_INVALID);
    refuse_plan(job, NULL, 0, pull, n_pull, STEPAF_PLAN_STREAM, STEPAF_ERR_INVALID);
    HS_OK(stepaf_free(job->ctx, memory));
}

/* Attention ranks: a plan in host memory has no calls on streams. */
void bad_host_plan(struct hs_job *job)
{
    stepaf_tensor_t push = {gx_key(ID, 0, 0), NULL, BYTES};
    stepaf_plan_h plan = NULL;
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    HS_OK(stepaf_key_declare(job->ctx, push.key, STEPAF_PUSH, BYTES, NULL));
    if (job->role == STEPAF_ATTENTION) {
        HS_OK(stepaf_alloc(job->ctx, BYTES, STEPAF_MEM_HOST, &push.data));
        HS_OK(stepaf_plan_create(job->ctx, &push, 1, NULL, 0, 0, &plan));
    }
    if (!HS_OK(stepaf_commit(job->ctx)) || !gx_plan_ready(&bad_plan))
        return;
    if (job->role != STEPAF_ATTENTION)
        return;
    HS_REFUSED(stepaf_start_on_stream(plan, NULL, bad_plan.stream, NULL), STEPAF_ERR_STATE);
    HS_REFUSED(stepaf_wait_on_stream(plan, bad_plan.stream), STEPAF_ERR_STATE);
    HS_REFUSED(stepaf_plan_tensor(plan, 0, 0, 0, &info), STEPAF_ERR_STATE);
    HS_REFUSED(stepaf_plan_status(plan), STEPAF_ERR_STATE);
    HS_TRUE(stepaf_plan_bytes(plan, 0) == NULL);
    HS_OK(stepaf_plan_destroy(plan));
}

/* How a plan is made different from its like. */
enum difference { NONE_AT_ALL, FEWER_PUSHES, OTHER_ORDER, LARGER_PULL, DIFFERENCES };

static const struct gx_shape shape = {
    .depth = 1, .n_push = 2, .push = {300, BYTES}, .n_pull = 1, .pull = {BYTES}};

/* This rank's side of a plan: at FFN ranks it differs. */
static bool make_other(struct gx_plan *plan, enum difference difference)
{
    stepaf_tensor_t push[GX_TENSORS], pull[GX_PEERS * GX_TENSORS], first;
    bool attention = plan->job->role == STEPAF_ATTENTION;
    int n_push = shape.n_push, n_pull;

    gx_plan_tensors(plan, push, pull, &n_pull);
    plan->handle = NULL;
    if (!attention && difference == NONE_AT_ALL)
        return true;
    if (!attention && difference == FEWER_PUSHES)
        n_push--;
    if (!attention && difference == OTHER_ORDER) {
        first = push[0];
        push[0] = push[1];
        push[1] = first;
    }
    for (int i = 0; attention && difference == LARGER_PULL && i < n_pull; i++)
        pull[i].bytes--; /* less room than what the other side may send */
    return HS_OK(
        gx_plan_create(plan->ctx, push, n_push, pull, n_pull, STEPAF_PLAN_STREAM, &plan->handle));
}

/* The sentence names a key of the plan. */
static void check_named(const struct gx_plan *plan)
{
    const char *text = stepaf_last_error()->text;
    char key[24];
    bool named = false;

    for (int i = 0; i < shape.n_push + shape.n_pull; i++) {
        bool is_pull = i >= shape.n_push;
        snprintf(key, sizeof key, "%llu",
                 (unsigned long long)gx_key(plan->id, is_pull, is_pull ? i - shape.n_push : i));
        named = named || strstr(text, key) != NULL;
    }
    if (!named)
        HS_FAILED("no key of the plan in: \"%s\"", text);
}

/* Every rank hears of it, and the last epoch goes on. */
void bad_matches(struct hs_job *job)
{
    uint32_t epoch = stepaf_epoch(job->ctx);
    struct gx_plan other;

    if (!gx_plan_begin(job, job->ctx, ID + 1, &shape, &other) || !gx_plan_declare(&other) ||
        !gx_plan_memory(&other))
        return;
    for (enum difference difference = 0; difference < DIFFERENCES; difference++) {
        if (!make_other(&other, difference))
            return;
        if (!HS_REFUSED(stepaf_commit(job->ctx), STEPAF_ERR_MISMATCH))
            HS_FAILED("difference number %d", (int)difference);
        check_named(&other);
        HS_INT(stepaf_epoch(job->ctx), ==, epoch);
        gx_plan_end(&other);
        if (!hs_sync(job) || !bad_good(job))
            return;
    }
    /* Mended. */
    stepaf_tensor_t push[GX_TENSORS], pull[GX_PEERS * GX_TENSORS];
    int n_pull;
    gx_plan_tensors(&other, push, pull, &n_pull);
    if (!HS_OK(gx_plan_create(job->ctx, push, shape.n_push, pull, n_pull, STEPAF_PLAN_STREAM,
                              &other.handle)) ||
        !HS_OK(stepaf_commit(job->ctx)) || !gx_plan_ready(&bad_plan) || !gx_plan_ready(&other) ||
        !hs_sync(job))
        return;
    for (int i = 0; i < 3; i++)
        if (!gx_exchange(&other, NULL))
            return;
    gx_verify(&other, 3);
    gx_plan_end(&other);
}
