/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that end a job. */
#ifndef RUN_SIGNALS_H
#define RUN_SIGNALS_H

#include <signal.h>

/* Block the ends of children, and the signals that are to end a job, but those that this process was
 * started to ignore, as by nohup; returns a descriptor to read them from, or -1 with errno.
 * *before_p: the mask before. */
int run_signals_open(sigset_t *before_p);

#endif
