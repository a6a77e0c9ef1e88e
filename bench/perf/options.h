/* SPDX-License-Identifier: Apache-2.0 */
/* The parsed command line. */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include <stdint.h>

#include <stepaf/types.h>

#include "sizes.h"

/* The tests: name, and what one operation is. */
#define PERF_TEST_MAP(_)                                                                    \
    _(PERF_AF, "af", "push out, FFN ranks respond, pulls land")                             \
    _(PERF_PUSH, "push", "push only, complete when every FFN rank has released")            \
    _(PERF_PULL, "pull", "pull only")                                                       \
    _(PERF_PUSH_THEN_PULL, "push_then_pull", "a push-only operation, then a pull-only one") \
    _(PERF_BW, "bw", "push only, many in flight: bandwidth")                                \
    _(PERF_RATE, "rate", "push and pull, many in flight: operations per second")            \
    _(PERF_FLOOR, "floor", "the floor alone, the pattern of af: no library")

enum perf_test {
#define PERF_TEST_ENUM(value_, name_, text_) value_,
    PERF_TEST_MAP(PERF_TEST_ENUM)
#undef PERF_TEST_ENUM
        PERF_TEST_LAST
};

/* One row of the table: sizes, or a shape with its element types. */
struct perf_row_size {
    size_t push_bytes; /* 0 where a shape is given */
    size_t pull_bytes;
    struct perf_shape shape; /* ndim 0: none */
};

enum perf_nccl { PERF_NCCL_NONE, PERF_NCCL_PLAIN, PERF_NCCL_FUSED };

struct perf_options {
    enum perf_test test;
    struct {
        uint64_t procs;               /* 0: under a launcher */
        uint64_t listen;              /* the port that another process connects to; 0: none */
        const char *connect;          /* the host of the listening process; NULL */
        const char *split;            /* NULL: from the environment or the launcher */
        const char *transport;        /* NULL: from the environment */
        const char *transport_before; /* the environment's value, overridden; NULL if none */
        const char *batch_file;       /* NULL: one test */
    } job;
    int n_rows;
    struct perf_row_size rows[PERF_MAX_SIZES];
    stepaf_dtype_t push_dtype, pull_dtype;
    uint64_t route_topk; /* 0: no routing tensors */
    uint64_t microbatches, depth;
    struct {
        uint64_t iters, warmup, rounds;
        uint64_t max_time_s; /* per row and contender; 0: no bound */
        int64_t timeout_us;  /* limit of each wait; -1: the library's setting */
        int forever;         /* measure the rows again until a signal arrives */
    } run;
    uint64_t keys;    /* of --startup */
    uint64_t answers; /* answers that complete an operation, to be measured; 0: all, as usual */
    uint64_t corrupt; /* one of so many answers has a wrong byte; 0: none */
    struct {
        int mem;
        uint64_t graph_ops;  /* operations of a captured graph; 0: enqueue one by one */
        uint64_t stream_ops; /* and then so many between two events */
        int load;
        uint64_t spare_sms; /* multiprocessors without the load */
    } cuda;
    enum perf_nccl baseline_nccl;
    int scatter, check, recv_each, release_apart, user_memory;
    int baseline_mpi, no_floor, trace_cost, startup;
    struct {
        int csv;
        const char *trace_file, *json_file, *samples_file, *report_file;
    } output;
};

/* Parse the command line. Returns -1 with a sentence; under a launcher, where ranks agree on the
 * failure later, nothing is printed then. --help and the like end the process; only @a rank 0
 * prints their output. */
int perf_options_parse(int argc, char **argv, int launched, int rank,
                       struct perf_options *options_p);

/* The same for the command line followed by the @a n_words words of one line of --batch, whose
 * options override; options of the whole job are rejected there. The words must outlive the
 * options. */
int perf_options_parse_line(int argc, char **argv, int n_words, char **words,
                            struct perf_options *options_p);

/* Return the deadline of the library's waits from --timeout or STEPAF_TIMEOUT_US, s; 0: neither
 * is given. */
double perf_options_wait_s(const struct perf_options *options);

const char *perf_test_name(enum perf_test test);
const char *perf_test_text(enum perf_test test);

#endif
