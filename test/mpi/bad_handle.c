/* SPDX-License-Identifier: Apache-2.0 */
/* Handles that are NULL, garbage, stale or of another kind, for every function that takes one. */
#include "bad_input.h"

#include <stdio.h>
#include <string.h>

enum { BAD_MAX = 16 };

static unsigned char memory[64];
static stepaf_batch_h held[HS_MAX_RANKS]; /* FFN ranks: one of each attention rank */

/* Functions that have another way to say no. */
static void check_values(void *h, int kind)
{
    if (kind == CONTEXT) {
        HS_INT(stepaf_role(h), ==, STEPAF_ROLE_AUTO);
        HS_INT(stepaf_rank(h, STEPAF_GROUP_WORLD), ==, -1);
        HS_INT(stepaf_size(h, STEPAF_GROUP_WORLD), ==, -1);
        HS_INT(stepaf_world_rank(h, STEPAF_GROUP_WORLD, 0), ==, -1);
        HS_INT(stepaf_epoch(h), ==, 0);
        HS_INT(stepaf_clock_ns(h), ==, -1);
        HS_INT(stepaf_default_timeout_us(h), ==, -1);
        HS_TRUE(stepaf_transport_name(h, 0) == NULL);
    } else if (kind == PLAN) {
        HS_INT(stepaf_plan_depth(h), ==, 0);
    } else if (kind == REQUEST) {
        HS_INT(stepaf_request_slot(h), ==, -1);
    }
}

static void try_all(void *h, int kind, const char *what)
{
    for (const struct bad_call *call = bad_calls; call->name != NULL; call++) {
        bool is_none =
            h == NULL && strcmp(call->name, "respond_many") == 0; /* no batch: no failure */
        if (call->kind == kind && !is_none && !HS_REFUSED(call->call(h), STEPAF_ERR_HANDLE))
            HS_FAILED("%s with %s", call->name, what);
    }
    check_values(h, kind);
}

/* Make one live handle of each kind that this role has; [kind][1] is a stale one. */
static void make_handles(struct hs_job *job, void *handles[KINDS][2])
{
    stepaf_plan_h stale_plan = NULL;
    stepaf_request_h request = NULL;
    stepaf_tensor_t push = {PUSH + SPARE, NULL, 1};
    int n;

    handles[CONTEXT][0] = job->ctx;
    if (is_ffn(job)) {
        HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, STEPAF_TIMEOUT_DEFAULT, held, job->attn,
                          &n));
        for (int a = 0; a < job->attn; a++)
            HS_OK(fx_answer(job, held[a], STEPAF_RESPOND_RELEASE));
        handles[BATCH][1] = held[0];
        HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, STEPAF_TIMEOUT_DEFAULT, held, job->attn,
                          &n));
        handles[BATCH][0] = held[0];
        return;
    }
    handles[PLAN][0] = bad_plans[WHOLE].handle;
    push.data = bad_plans[WHOLE].source;
    HS_OK(stepaf_plan_create(job->ctx, &push, 1, NULL, 0, 0, &stale_plan));
    HS_OK(stepaf_plan_destroy(stale_plan));
    handles[PLAN][1] = stale_plan;
    HS_OK(fx_start(&bad_plans[WHOLE], STEPAF_START_WAIT, &request));
    HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    handles[REQUEST][1] = request;
    HS_OK(fx_start(&bad_plans[WHOLE], STEPAF_START_WAIT, &request));
    handles[REQUEST][0] = request;
}

void bad_handles(struct hs_job *job)
{
    void *handles[KINDS][2] = {{NULL}};
    struct bad_state state;
    char what[64];

    make_handles(job, handles);
    bad_remember(job, &state);
    for (int kind = 0; kind < KINDS; kind++) {
        void *bad[BAD_MAX] = {NULL,
                              (void *)1,
                              (void *)-1,
                              memory,
                              (void *)0x7ffffffffff0,
                              (void *)((uintptr_t)job->ctx << 1),
                              handles[kind][1]};
        int n = 7;
        for (int other = 0; other < KINDS; other++)
            if (other != kind)
                bad[n++] = handles[other][0];
        for (int i = 0; i < n; i++) {
            snprintf(what, sizeof what, "handle %p of kind %d (number %d)", bad[i], kind, i);
            try_all(bad[i], kind, what);
        }
    }
    bad_unchanged(job, &state, "handles");
    hs_sync(job);
    for (int a = 0; a < job->attn && is_ffn(job); a++)
        HS_OK(fx_answer(job, held[a], STEPAF_RESPOND_RELEASE));
    if (!is_ffn(job))
        HS_OK(stepaf_wait(handles[REQUEST][0], STEPAF_TIMEOUT_DEFAULT));
}
