/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PERF_OPTIONS_MEET_H
#define PERF_OPTIONS_MEET_H

#include "job.h"
#include "options.h"

/* Check that every rank could read its command line and its @a n tests, for which this rank
 * reports @a rc, and that all were given the same options where required: ranks with different
 * options would wait for each other for ever. Collective; -1 with a sentence on every rank. */
int perf_options_meet(struct perf_job *job, int n, const struct perf_options *options, int rc);

#endif
