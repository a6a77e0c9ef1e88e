/* SPDX-License-Identifier: Apache-2.0 */
/* The attention rank's side of test/mpi/verdict. */
#ifndef STEPAF_TEST_VERDICT_ASK_H
#define STEPAF_TEST_VERDICT_ASK_H

#include "verdict.h"

enum { VD_WARM_UP = 48 /* operations that a median is of, at most */ };

struct vd_delay {
    int64_t ns[VD_KINDS];
    int ffn, rail;
};

struct vd_tally {
    int right, wrong, disturbed;
};

struct vd_attention {
    struct hs_job *job;
    stepaf_plan_h plan;
    struct vd_push *push;
    uint32_t sequence; /* of the next operation */
    int64_t pause_us;  /* before each start */
    int64_t median_ns;
    int64_t took_ns; /* the last operation */
    int64_t work_ns; /* what an FFN rank takes */
    int64_t
        starved_ns; /* this thread had no core for so long in the last operation, says the kernel */
    struct vd_tally tally;
};

/* kinds: their names, and what of the network they are; by netem: not the program's own. */
const char *vd_kind_name(int kind);
bool vd_is_of_network(int kind);
bool vd_is_of_rail(int kind);
bool vd_is_by_netem(int kind);
/* Print what the delay was and the verdict; NULL: there was none. */
void vd_describe(const struct vd_attention *self, const char *what, const struct vd_delay *delay,
                 const stepaf_verdict_t *verdict);
/* Whether the verdict is what the delay was. */
bool vd_is_right(const struct vd_delay *delay, const stepaf_verdict_t *verdict);
/* Whether who is accused has seen it himself: an FFN rank, or the kernel of this one. */
bool vd_admits(const struct vd_attention *self, const stepaf_verdict_t *verdict);

/* What FFN ranks are to do with an operation. */
void vd_set_order(const struct vd_attention *self, const struct vd_delay *delay, uint32_t sequence);
/* One operation, which is slow as @a delay says; NULL: it is not. */
bool vd_operate(struct vd_attention *self, const struct vd_delay *delay, bool last,
                int64_t *took_p);
/* The verdict on operation @a sequence; false: none has come. */
bool vd_find_verdict(struct vd_attention *self, uint32_t sequence, stepaf_verdict_t *verdict_p);
/* Take the median of @a n operations without a delay. */
bool vd_measure(struct vd_attention *self, int n);

/* Put in all delays that there are to be. */
void vd_put_in(struct vd_attention *self);

#endif
