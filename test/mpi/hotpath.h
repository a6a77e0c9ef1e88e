/* SPDX-License-Identifier: Apache-2.0 */
/* The hot path test, shared by its files. */
#ifndef STEPAF_TEST_HOTPATH_H
#define STEPAF_TEST_HOTPATH_H

#include <sys/syscall.h>

#include "harness.h"

/* The marker: a harmless system call with an argument that nothing else uses. */
enum {
    HOT_MARK_CALL = SYS_getpriority,
    HOT_MARK = 0x5afe,
    HOT_OPERATIONS = 100000,
    HOT_WARM_UP = 2000,
    HOT_LIMIT_S = 60,
    HOT_STALL_US = 500
};

struct hot_counts {
    long operations, allocations, locks;
};

/* The data that ranks send to the parent. */
struct hot_page {
    struct hot_counts counts[2];
    _Atomic int64_t began[2]; /* since when each rank has been waiting, ns */
};

extern struct hot_page *hot_page;

/* ---- hotpath_rank.c ---- */
void hot_rank(stepaf_boot_local_t *local, int rank);

/* ---- hotpath_count.c ---- */
bool hot_interposed(void);
void hot_count_begin(void);
void hot_count_end(struct hot_counts *counts);

#endif
