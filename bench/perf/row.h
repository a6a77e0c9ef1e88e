/* SPDX-License-Identifier: Apache-2.0 */
/* One row of the table: measured by contenders that take turns, so that noise affects them
 * alike. */
#ifndef PERF_ROW_H
#define PERF_ROW_H

#include "case.h"
#include "job.h"
#include "links.h"
#include "options.h"
#include "phases.h"
#include "place.h"
#include "spread.h"
#include "stats.h"
#include "trace.h"

enum perf_who { PERF_OURS, PERF_MPI, PERF_NCCL, PERF_FLOOR_LOOP, PERF_WHO_LAST };

struct perf_result {
    struct perf_case c;
    int index;                      /* row number, from 0 */
    double time_s;                  /* since the first row began, with --forever */
    char transport[PERF_LINKS_MAX]; /* of all links */
    const char *floor_name;         /* what the floor is */
    const char *floor_word;         /* in one word: "memcpy", "tcp;spin", "verbs", "ofi", "ucx" */
    const char *floor_wait;         /* how it waits; "" where there is no choice */
    uint64_t iters;                 /* timed operations of each attention rank */
    int has[PERF_WHO_LAST];
    struct perf_stats stats[PERF_WHO_LAST]; /* us, over all attention ranks */
    double us_per_op[PERF_WHO_LAST]; /* elapsed time divided by operations: of the slowest rank */
    double ops_per_s; /* of all attention ranks together; ours, or the floor's in its own test */
    double gb_per_s;
    double posts_per_op; /* of an attention rank: one for each FFN rank and stage */
    int checked;
    uint64_t checked_ops;
    uint64_t wrong_bytes; /* over all ranks */
    /* for a file, at rank 0: NULL if none was requested */
    struct perf_spread *spread[PERF_WHO_LAST];
    struct perf_peer *peers; /* by attention rank and FFN rank */
    /* of tensors in GPU memory */
    int loaded;        /* beside a kernel that fills the GPUs */
    uint64_t unit_ops; /* operations of a sample */
    const char *gpu;   /* what rank 0's is called */
    double copies_us;  /* tensors that go through host memory: copy engines alone; 0: none */
    double wire_us;    /* median of the same bytes over plain TCP, where links use it; 0: none */
    struct {
        double host_us[PERF_WHO_LAST]; /* median of the host's time in the calls for an operation */
        double thread_us;              /* work of the library's thread per operation, the largest */
    } cpu;
};

/* The contender of the result's main columns. */
static inline enum perf_who perf_result_main(const struct perf_result *r)
{
    return r->has[PERF_OURS] ? PERF_OURS : PERF_FLOOR_LOOP;
}

/* Tensor bytes that all attention ranks together move with @a who, in 10^9 a second. */
static inline double perf_result_gb_per_s(const struct perf_result *r, enum perf_who who)
{
    double us = r->us_per_op[who];

    return us > 0.0 ? (double)r->c.attn * (double)r->c.op_bytes / us / 1e3 : 0.0;
}

/* Operations a second of all attention ranks together. */
static inline double perf_result_ops_per_s(const struct perf_result *r, enum perf_who who)
{
    double us = r->us_per_op[who];

    return us > 0.0 ? (double)r->c.attn * 1e6 / us : 0.0;
}

/* Measure row @a row. Collective; -1 with a sentence on every rank. @a trace may be NULL. */
int perf_row_run(struct perf_job *job, const struct perf_options *options,
                 const struct perf_place *place, int row, struct perf_trace *trace,
                 struct perf_result *result_p);

/* Free the parts of a result that are for a file. */
void perf_result_free(struct perf_result *r);

/* The block sizes of a row whose operations take @a op_us each. Pure. */
struct perf_schedule {
    uint64_t rounds;
    uint64_t lead_ops, timed_ops; /* per round; multiples of the window */
};
void perf_schedule_make(const struct perf_options *options, unsigned window, double op_us,
                        struct perf_schedule *schedule_p);

/* Warm-up operations: the number requested, limited to a fifth of the time. Pure. */
uint64_t perf_schedule_warmup(const struct perf_options *options, double op_us);

/* Round @a ops up to a multiple of @a window, at least one. */
uint64_t perf_schedule_whole(uint64_t ops, unsigned window);

#endif
