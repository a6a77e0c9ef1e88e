/* SPDX-License-Identifier: Apache-2.0 */
/* Deliberate delays, and whether the verdict finds them. Ranks are forked, and share a page of
 * their own: an attention rank sets there what will be slow in its next operation, and FFN ranks
 * record what they know of the truth. */
#ifndef STEPAF_TEST_VERDICT_H
#define STEPAF_TEST_VERDICT_H

#include "harness.h"

enum { VD_PUSH_KEY = 1, VD_PULL_KEY = 2, VD_RANKS = 8, VD_TRUTHS = 4096 };

/* What can be slow; each has a phase that it is to be found as. */
enum vd_kind {
    VD_START,      /* the attention rank comes late to start */
    VD_THERE,      /* the FFN rank's network holds what comes */
    VD_QUEUE,      /* the FFN rank does not look */
    VD_WORK,       /* it takes longer to answer */
    VD_BACK,       /* its network holds what it sends */
    VD_WAIT,       /* the attention rank comes late to wait */
    VD_STARVED,    /* it is stopped while it waits */
    VD_RAIL_THERE, /* as VD_THERE and VD_BACK, but of one rail alone */
    VD_RAIL_BACK,
    VD_KINDS
};

/* The affected part of the network: a rail, or all of them. */
enum { VD_ALL_RAILS = -1, VD_NO_RAIL = -2, VD_RAILS = 2 };

struct vd_order {
    _Atomic uint32_t sequence; /* the operation that is meant */
    _Atomic int ffn;           /* where */
    _Atomic int rail;          /* of VD_RAIL_THERE and VD_RAIL_BACK */
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

/* What a push begins with. */
struct vd_push {
    uint32_t sequence;
    uint32_t last;
};

extern struct vd_shared *vd_shared;

void vd_serve(struct hs_job *job, uint8_t *answer, size_t bytes, int64_t work_ns);

/* The network: verdict_net.c stands before the C library's calls. @a rail: of TCP the connections,
 * of which the first has the messages; VD_NO_RAIL: nothing is held. */
void vd_net_hold_in(int rail);
void vd_net_hold_out(int rail); /* VD_NO_RAIL: and send what was held */

/* The same by the kernel's netem, on network interfaces: verdict_netem.c. Their names have commas
 * between, one for each rail; @a there: what the attention rank sends by, @a back: the FFN rank.
 * False: tc cannot be had. */
bool vd_netem_open(const char *there, const char *back);
bool vd_netem_is_open(void);
/* Delay traffic there or back on a rail; 0: no longer. */
void vd_netem_delay(bool back, int rail, int64_t delay_ns);
void vd_netem_close(void);

/* Fork the process that stops this one on request; @a index: of attention ranks. */
pid_t vd_stop_fork(int index, bool by_core);

#endif
