/* SPDX-License-Identifier: Apache-2.0 */
/* What a transport costs a rank in instructions, to be run by callgrind, as test/lib/verbs_cost.sh
 * and fabric_cost.sh do.
 *
 * One attention rank and some FFN ranks are contexts of this process, over something made up.
 * Callgrind switches collecting whenever it enters or leaves a function whose name begins with
 * "counted_": on at the library's calls, off again within what carries them, whose work is not the
 * library's. It dumps after each call of "counts_end"; what the dumps are of is printed here, in
 * the same order: step, FFN ranks, pushed tensors, their bytes, operations. */
#ifndef STEPAF_TEST_COST_JOB_H
#define STEPAF_TEST_COST_JOB_H

#include <stdbool.h>
#include <stddef.h>

enum cost_step { COST_NOTHING, COST_START, COST_WAIT, COST_RECV, COST_RESPOND };

/* What carries the job. */
struct cost_carrier {
    /* From now on its calls are, or are not, from within what is counted. */
    void (*count)(bool on);
    /* A step begins, and ends, at one rank, counted or not: it may count calls. Or NULL. */
    void (*begin)(enum cost_step step);
    void (*end)(enum cost_step step);
    /* All operations of a job have been. Or NULL. */
    void (*judge)(void);
};

extern const struct cost_carrier *cost_carrier;
extern int cost_n_ffn, cost_n_tensors;
extern size_t cost_bytes; /* of a tensor */

enum { COST_FFN_MAX = 8, COST_FFN_SOME = 4, COST_OPERATIONS = 64 };

/* Ranks are threads while they begin and end, of which one goes on at a time: what is made up knows
 * no threads. Where such a thread polls, it is to let others go on. Else nothing. */
void cost_give_way(void);

void cost_open_job(void);
void cost_close_job(void);
/* One operation, of which one step is counted: at all FFN ranks that is done there. */
void cost_operate(enum cost_step counted);
/* Jobs, of which each step is counted for some blocks of COST_OPERATIONS operations. The least of
 * them counts: where the machine was busy, more of what is done ten times a second is in the
 * others. Of one tensor of few bytes or many, and of four; at 1 to COST_FFN_MAX FFN ranks,
 * doubling. */
void cost_measure_all(void);
/* Of one tensor of few bytes, and of four of many, at 1 and at COST_FFN_SOME FFN ranks. */
void cost_measure_some(void);

/* End the program, unless this is good. */
void cost_must(bool good, const char *what);

#endif
