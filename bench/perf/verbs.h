/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of RDMA: the cost of the same pattern with plain verbs between the same processes,
 * on the device of the library's links: a queue pair of the bench's own for each pair of ranks.
 * A message is the tensors that one rank has for the other, written straight to their places by
 * work requests that were prepared beforehand and are posted by one call, the last with 32 bits
 * of immediate data; without tensors, a write of zero bytes. As in the library, messages that
 * fit are inline, the others are signalled, and receives are posted in batches. No checks, no
 * deadlines, no lost peers. */
#ifndef PERF_VERBS_H
#define PERF_VERBS_H

#include "buffers.h"
#include "case.h"
#include "contender.h"
#include "job.h"
#include "place.h"

struct perf_verbs;

/* Whether this build has the contender: it has libibverbs. */
int perf_verbs_built(void);

/* Connect on the device of link @a link ("verbs;mlx5_0:1"); if that is NULL on the first one of
 * STEPAF_NET_DEVICES, or the first active one. Tensors are sent from and received in @a buffers.
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
