/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that fail by a signal, which would end a program that has no handler for it: SIGPIPE
 * where nobody reads, SIGXFSZ beyond RLIMIT_FSIZE. In between the calling thread gets neither, and
 * the call's errno is all that says so. What the program has pending already stays. */
#ifndef STEPAF_BASE_QUIET_H
#define STEPAF_BASE_QUIET_H

#include <signal.h>

struct stepaf_quiet {
    sigset_t before; /* the thread's mask */
    sigset_t ours;   /* of the two, those that were not pending */
};

/* errno stays as it is. Not to be nested. */
void stepaf_quiet_begin(struct stepaf_quiet *quiet);
void stepaf_quiet_end(const struct stepaf_quiet *quiet);

#endif
