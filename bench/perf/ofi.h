/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of libfabric: the cost of the same pattern with plain writes with 32 bits of data
 * between the same processes, by the provider of the library's links, with one endpoint of the
 * bench's own in each rank. A message is the tensors that one rank has for the other, each
 * written straight to its place; without tensors, a write of zero bytes. A message is complete
 * when all its writes have landed. No messages, no checks, no deadlines, no lost peers. */
#ifndef PERF_OFI_H
#define PERF_OFI_H

#include "buffers.h"
#include "case.h"
#include "contender.h"
#include "job.h"
#include "place.h"

struct perf_ofi;

/* Whether this build has the contender: it has libfabric's headers. */
int perf_ofi_built(void);

/* Connect by the provider of link @a link ("ofi;tcp;ofi_rxm"), or if that is NULL by that of
 * STEPAF_OFI_PROVIDER. Tensors are sent from and received in @a buffers. Collective; -1 with a
 * sentence on every rank. */
int perf_ofi_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_case *c, const struct perf_place *place,
                  const struct perf_buffers *buffers, const char *link, struct perf_ofi **ofi_p);

/* NULL is ignored. */
void perf_ofi_close(struct perf_ofi *ofi);

/* perf_contender's run. */
int perf_ofi_run(void *self, struct perf_block *block);

#endif
