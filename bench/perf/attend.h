/* SPDX-License-Identifier: Apache-2.0 */
/* The attention side's loop, the same for every contender: fill the window, then repeatedly wait
 * for the oldest operation and start it again. Inlined with its callbacks, so that the loop adds
 * no cost to the measurement. */
#ifndef PERF_ATTEND_H
#define PERF_ATTEND_H

#include "case.h"
#include "clock.h"
#include "contender.h"

enum { PERF_MAX_WINDOW = 1024 };

/* Start or finish stage @a stage of the operation at place @a place; -1 with a sentence. */
typedef int (*perf_attend_t)(void *self, unsigned place, int stage);

/* Run @a ops operations, a multiple of the window. */
static inline __attribute__((always_inline)) int perf_attend_ops(const struct perf_case *c,
                                                                 void *self, perf_attend_t start,
                                                                 perf_attend_t wait, uint64_t ops,
                                                                 double *samples)
{
    uint64_t starts[PERF_MAX_WINDOW];
    const unsigned window = c->window;
    const int stages = c->n_stages;
    uint64_t turns = ops / window * (uint64_t)stages;
    int stage = 0;

    for (uint64_t turn = 0; turn <= turns; turn++) {
        int before = stage == 0 ? stages - 1 : stage - 1;

        for (unsigned place = 0; place < window; place++) {
            if (turn > 0) {
                if (wait(self, place, before) != 0)
                    return -1;
                if (before == stages - 1 && samples != NULL)
                    *samples++ = (double)(perf_ticks() - starts[place]);
            }
            if (turn < turns) {
                if (stage == 0)
                    starts[place] = perf_ticks();
                if (start(self, place, stage) != 0)
                    return -1;
            }
        }
        stage = stage == stages - 1 ? 0 : stage + 1;
    }
    return 0;
}

static inline __attribute__((always_inline)) int perf_attend_block(const struct perf_case *c,
                                                                   void *self, perf_attend_t start,
                                                                   perf_attend_t wait,
                                                                   struct perf_block *block)
{
    uint64_t begin;

    if (perf_attend_ops(c, self, start, wait, block->lead_ops, NULL) != 0)
        return -1;
    begin = perf_ticks();
    if (perf_attend_ops(c, self, start, wait, block->timed_ops, block->samples) != 0)
        return -1;
    block->elapsed = perf_ticks() - begin;
    return 0;
}

#endif
