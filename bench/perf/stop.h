/* SPDX-License-Identifier: Apache-2.0 */
/* A signal that ends --forever after the current block. */
#ifndef PERF_STOP_H
#define PERF_STOP_H

#include "job.h"

/* From here on, and in children, the first SIGINT or SIGTERM is only recorded. A later one has
 * its usual effect. */
void perf_stop_on_signals(void);

/* Return whether this process has received one. */
int perf_stop_asked(void);

/* Return whether any rank has received one; permanent once true. Collective; -1 with a sentence. */
int perf_stop_agree(struct perf_job *job, int *stop_p);

#endif
