/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a local bootstrap, as processes or as threads (so that a race detector sees them). */
#ifndef STEPAF_TEST_RANKS_H
#define STEPAF_TEST_RANKS_H

#include <stepaf/boot.h>

enum { RANKS_MAX = 32 };

/* The body of one rank; returns the number of errors. Assertions would be lost in another
 * process. */
typedef int (*rank_body_t)(const stepaf_boot_t *boot, void *arg);

/* Print what is wrong, and return 1. */
int rank_wrong(const stepaf_boot_t *boot, const char *file, int line, const char *what);

/* For bodies: return if @a condition_ does not hold. */
#define RANK_CHECK(boot_, condition_)                                  \
    do {                                                               \
        if (!(condition_))                                             \
            return rank_wrong(boot_, __FILE__, __LINE__, #condition_); \
    } while (0)

/* Run @a size ranks as processes; statuses_p[rank] is the status from waitpid. Odd ranks report
 * application number 1, the others 0. */
void ranks_run(int size, rank_body_t body, void *arg, int *statuses_p);

/* Run @a size ranks, and assert that all succeed. */
void ranks_expect_processes(int size, rank_body_t body, void *arg);
void ranks_expect_threads(int size, rank_body_t body, void *arg);

#endif
