/* SPDX-License-Identifier: Apache-2.0 */
/* A signal that ends --forever after the block that is being measured. */
#ifndef PERF_STOP_H
#define PERF_STOP_H

#include "job.h"

/* From here on, and in children, the first SIGINT or SIGTERM is noted only. One that comes later
 * has its usual effect. */
void perf_stop_on_signals(void);

/* Whether one has come to this process. */
int perf_stop_asked(void);

/* Whether one has come to any rank; once so, it stays so. Collective; -1 with a sentence. */
int perf_stop_agree(struct perf_job *job, int *stop_p);

#endif
