/* SPDX-License-Identifier: Apache-2.0 */
/* One of two real ranks, attention and FFN: a push key, a pull key, and a plan that names both. */
#ifndef STEPAF_TEST_PAIR_RANK_H
#define STEPAF_TEST_PAIR_RANK_H

#include <stdbool.h>

#include <stepaf/stepaf.h>

#include "ranks.h"

enum { PAIR_PUSHED = 1, PAIR_PULLED = 2, PAIR_BYTES = 4096 };

struct pair_rank {
    const stepaf_boot_t *boot;
    stepaf_context_h ctx;
    stepaf_plan_h plan; /* attention */
    uint8_t *memory;
    bool ffn;
};

/* These functions return 0, or 1 after printing what was wrong. */
/* Join the job, up to the commit. @a progress: STEPAF_PROGRESS. */
int pair_open(struct pair_rank *rank, const stepaf_boot_t *boot, const char *progress);
/* Call at the FFN rank. */
int pair_receive(struct pair_rank *rank, stepaf_batch_h *batch_p);
int pair_answer(struct pair_rank *rank, stepaf_batch_h batch);

#endif
