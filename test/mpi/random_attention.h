/* SPDX-License-Identifier: Apache-2.0 */
/* The random test's attention side, shared by its two files. */
#ifndef STEPAF_TEST_RANDOM_ATTENTION_H
#define STEPAF_TEST_RANDOM_ATTENTION_H

#include <sched.h>

#include "random.h"

struct a_slot {
    stepaf_request_h request;
    bool busy;     /* started and not waited for */
    bool unsent;   /* its sources are in use */
    bool given_up; /* canceled while in flight */
    bool dirty;    /* the last operation was canceled: a late answer may have landed */
    struct r_op op;
    unsigned char *source[R_FFN][R_PUSH];
};

struct a_plan {
    stepaf_plan_h handle;
    struct r_arena arena;
    uint32_t next; /* ordinal */
    unsigned char *planned[R_PUSH];
    unsigned char *target[R_FFN][R_PULL];
    struct a_slot slots[R_DEPTH];
};

extern struct a_plan a_plans[R_PLANS];
extern struct r_dice a_dice;

/* Wait for an operation, one way or another, and look at all that it brought. */
bool a_finish(struct hs_job *job, const struct r_model *model, int plan, unsigned slot);
/* The same for any one that is in flight, if there is one. */
bool a_finish_some(struct hs_job *job, const struct r_model *model);
/* Cancel it. */
void a_give_up(struct a_slot *slot);

#endif
