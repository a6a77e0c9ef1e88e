/* SPDX-License-Identifier: Apache-2.0 */
/* The reason of a failure: one sentence, kept until a rank prints it. */
#ifndef PERF_FAIL_H
#define PERF_FAIL_H

#include <stepaf/status.h>

#define PERF_FAIL_MAX 480

/* Exit codes of the program. */
enum { PERF_EXIT_OK = 0, PERF_EXIT_FAILED = 1, PERF_EXIT_USAGE = 2 };

/* Record a sentence. */
void perf_fail_set(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Record a sentence and evaluate to -1, for the caller to return. A macro, so that the compiler
 * sees the -1: functions that set their outputs only on success are called everywhere. */
#define perf_fail(...) (perf_fail_set(__VA_ARGS__), -1)

/* For a library call that failed in this thread just now: record the library's sentence. */
void perf_fail_set_status(stepaf_status_t status, const char *call);

static inline int perf_fail_status(stepaf_status_t status, const char *call)
{
    perf_fail_set_status(status, call);
    return -1;
}

/* Return whether the last recorded failure is the loss of a peer: the ranks cannot agree then. */
int perf_fail_is_loss(void);

/* Return the last recorded sentence; "" if there is none. */
const char *perf_fail_text(void);

#endif
