/* SPDX-License-Identifier: Apache-2.0 */
/* Two measurements: the time of operations that complete with some of their answers, and that
 * time while an FFN rank that they can do without is stopped. */
#ifndef PERF_ANSWERS_H
#define PERF_ANSWERS_H

#include "job.h"
#include "options.h"
#include "place.h"

/* Measure and print all rows. Collective; -1 with a sentence on every rank. */
int perf_answers_run(struct perf_job *job, const struct perf_options *options,
                     const struct perf_place *place);

#endif
