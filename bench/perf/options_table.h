/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PERF_OPTIONS_TABLE_H
#define PERF_OPTIONS_TABLE_H

#include <argp.h>

/* Options without a letter. */
enum {
    KEY_PROCS = 256,
    KEY_SPLIT,
    KEY_TRANSPORT,
    KEY_SIZE,
    KEY_PUSH_SIZE,
    KEY_PULL_SIZE,
    KEY_SHAPE,
    KEY_PUSH_DTYPE,
    KEY_PULL_DTYPE,
    KEY_ROUTE_TOPK,
    KEY_SCATTER,
    KEY_ROUNDS,
    KEY_MAX_TIME,
    KEY_TIMEOUT,
    KEY_CHECK,
    KEY_CORRUPT,
    KEY_RECV,
    KEY_RELEASE,
    KEY_MEMORY,
    KEY_BASELINE,
    KEY_NO_FLOOR,
    KEY_TRACE,
    KEY_TRACE_COST,
    KEY_ANSWERS,
    KEY_STARTUP,
    KEY_KEYS,
    KEY_MEM,
    KEY_STREAM,
    KEY_GRAPH,
    KEY_LOAD,
    KEY_CSV,
    KEY_JSON,
    KEY_SAMPLES,
    KEY_REPORT,
    KEY_FOREVER,
    KEY_BATCH,
    KEY_LISTEN,
    KEY_CONNECT
};

/* Options below a heading are one group, in the order of --help. */
enum { GROUP_RANKS = 1, GROUP_TENSORS, GROUP_OPERATIONS, GROUP_GPU, GROUP_PROOF, GROUP_OUTPUT };

/* The options for --help, ended by an empty entry. */
extern const struct argp_option perf_option_table[];

#endif
