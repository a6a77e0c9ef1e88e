/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PERF_OPTIONS_MEET_H
#define PERF_OPTIONS_MEET_H

#include "job.h"
#include "options.h"

/* Whether every rank could read its command line and its @a n tests, for which this one says @a rc,
 * and all were given the same one as far as they have to be: ranks that go different ways would
 * wait for each other for ever. Collective; -1 with a sentence on every rank. */
int perf_options_meet(struct perf_job *job, int n, const struct perf_options *options, int rc);

#endif
