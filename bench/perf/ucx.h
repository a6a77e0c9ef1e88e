/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of UCX: the cost of the same pattern with plain active messages of UCP between the
 * same processes: one worker of the bench's own in each rank, on the transports that UCX
 * chooses, as for the library. A message is the tensors that one rank has for the other, each an
 * active message that is delivered to its place; without tensors, an empty one. A message is
 * complete when all its active messages have arrived. No tokens, no checks, no deadlines, no
 * lost peers. */
#ifndef PERF_UCX_H
#define PERF_UCX_H

#include "buffers.h"
#include "case.h"
#include "contender.h"
#include "job.h"
#include "place.h"

struct perf_ucx;

/* Whether this build has the contender: it has UCX's headers. */
int perf_ucx_built(void);

/* Connect. Tensors are sent from and received in @a buffers. Collective; -1 with a sentence on
 * every rank. */
int perf_ucx_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_case *c, const struct perf_place *place,
                  const struct perf_buffers *buffers, struct perf_ucx **ucx_p);

/* NULL is ignored. */
void perf_ucx_close(struct perf_ucx *ucx);

/* perf_contender's run. */
int perf_ucx_run(void *self, struct perf_block *block);

#endif
