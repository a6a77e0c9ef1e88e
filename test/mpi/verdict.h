/* SPDX-License-Identifier: Apache-2.0 */
/* Delays that are put in on purpose, and whether the verdict finds them. Ranks are forked, and share a page of their
 * own: an attention rank says there what is to be slow about its next operation, and FFN ranks say what they know of
 * the truth. */
#ifndef STEPAF_TEST_VERDICT_H
#define STEPAF_TEST_VERDICT_H

#include "harness.h"

enum { VD_PUSH_KEY = 1, VD_PULL_KEY = 2, VD_RANKS = 8, VD_TRUTHS = 4096 };

/* What can be slow; each has a phase that it is to be found as. */
enum vd_kind {
    VD_START,   /* the attention rank comes late to start */
    VD_THERE,   /* the FFN rank's network holds what comes */
    VD_QUEUE,   /* the FFN rank does not look */
    VD_WORK,    /* it takes longer to answer */
    VD_BACK,    /* its network holds what it sends */
    VD_WAIT,    /* the attention rank comes late to wait */
    VD_STARVED, /* it is stopped while it waits */
    VD_KINDS
};

struct vd_order {
    _Atomic uint32_t sequence; /* the operation that is meant */
    _Atomic int ffn;           /* where */
    _Atomic int64_t delay_ns[VD_KINDS];
    _Atomic uint32_t started; /* sequence + 1 of the last one started */
    _Atomic int64_t started_ns;
};

/* What an FFN rank knows of one batch. */
struct vd_truth {
    _Atomic uint32_t sequence; /* + 1; 0: nothing yet */
    _Atomic int64_t away_ns;   /* the longest that it has not looked since the batch before */
    _Atomic int64_t work_ns;
};

struct vd_shared {
    struct vd_order orders[VD_RANKS];                      /* by attention rank */
    struct vd_truth truths[VD_RANKS][VD_RANKS][VD_TRUTHS]; /* FFN, attention */
    _Atomic int64_t stop_ns[VD_RANKS]; /* attention ranks that are to be stopped, for how long */
    _Atomic int turn;                  /* attention rank + 1 that puts one in; 0: nobody */
    _Atomic int busy; /* attention ranks for which FFN ranks are still to be slow */
    _Atomic int over;
};

/* What a push says. */
struct vd_push {
    uint32_t sequence;
    uint32_t last;
};

extern struct vd_shared *vd_shared;

void vd_serve(struct hs_job *job, uint8_t *answer, int64_t work_ns);

/* The network: verdict_net.c stands before the C library's calls. */
void vd_net_hold_in(bool holds);
void vd_net_hold_out(bool holds); /* false: and send what was held */

/* Fork the process that stops this one when it is told to; @a index: of attention ranks. */
pid_t vd_stop_fork(int index, bool by_core);

#endif
