/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of RDMA: what the same pattern costs by plain verbs between the very processes, on the
 * device that the library's links are on: a queue pair of the bench's own for each pair of ranks. A
 * message is the tensors that one rank has for the other, written straight to their places by work
 * requests that were made beforehand and are posted by one call, the last of them with 32 bits;
 * where there is none, a write of no bytes. As the library does, what fits goes inline, the other
 * messages are signalled, and receives are posted in batches. No checks, no deadlines, no lost
 * peers. */
#ifndef PERF_VERBS_H
#define PERF_VERBS_H

#include "buffers.h"
#include "case.h"
#include "contender.h"
#include "job.h"
#include "place.h"

struct perf_verbs;

/* Whether this build can: it has libibverbs. */
int perf_verbs_built(void);

/* Connect, on the device of link @a link ("verbs;mlx5_0:1"), or if that is NULL on the first one of
 * STEPAF_NET_DEVICES, or the first one that is active. Tensors go from and to @a buffers.
 * Collective; -1 with a sentence on every rank. */
int perf_verbs_open(struct perf_job *job, const struct perf_options *options,
                    const struct perf_case *c, const struct perf_place *place,
                    const struct perf_buffers *buffers, const char *link,
                    struct perf_verbs **verbs_p);

/* NULL is ignored. */
void perf_verbs_close(struct perf_verbs *verbs);

/* perf_contender's run. */
int perf_verbs_run(void *self, struct perf_block *block);

#endif
