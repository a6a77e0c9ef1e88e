/* SPDX-License-Identifier: Apache-2.0 */
/* Suppress signals of failing system calls that would end a program without a handler: SIGPIPE if
 * nobody reads, SIGXFSZ beyond RLIMIT_FSIZE. Between begin and end the calling thread gets neither,
 * and only the call's errno reports the failure. Signals that were pending before stay pending. */
#ifndef STEPAF_BASE_QUIET_H
#define STEPAF_BASE_QUIET_H

#include <signal.h>

struct stepaf_quiet {
    sigset_t before; /* the thread's mask */
    sigset_t ours;   /* those of the two that were not pending */
};

/* errno stays as it is. Must not be nested. */
void stepaf_quiet_begin(struct stepaf_quiet *quiet);
void stepaf_quiet_end(const struct stepaf_quiet *quiet);

#endif
