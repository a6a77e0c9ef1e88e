/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that end a job. */
#ifndef RUN_SIGNALS_H
#define RUN_SIGNALS_H

#include <signal.h>

/* Block SIGCHLD and the signals that end a job, except signals that this process was started to
 * ignore, as by nohup. Return a file descriptor to read them from, or -1 with errno. *before_p:
 * the mask before. */
int run_signals_open(sigset_t *before_p);

#endif
