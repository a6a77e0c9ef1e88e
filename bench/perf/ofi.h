/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of libfabric: what the same pattern costs by plain writes of 32 bits' data between the
 * very processes, by the provider that the library's links have: one endpoint of the bench's own in
 * each rank. A message is the tensors that one rank has for the other, each written straight to its
 * place; where there is none, a write of no bytes. It is there when as many writes have landed. No
 * messages, no checks, no deadlines, no lost peers. */
#ifndef PERF_OFI_H
#define PERF_OFI_H

#include "buffers.h"
#include "case.h"
#include "contender.h"
#include "job.h"
#include "place.h"

struct perf_ofi;

/* Whether this build can: it has libfabric's headers. */
int perf_ofi_built(void);

/* Connect by the provider of link @a link ("ofi;tcp;ofi_rxm"), or if that is NULL by that of
 * STEPAF_OFI_PROVIDER. Tensors go from and to @a buffers. Collective; -1 with a sentence on every
 * rank. */
int perf_ofi_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_case *c, const struct perf_place *place,
                  const struct perf_buffers *buffers, const char *link, struct perf_ofi **ofi_p);

/* NULL is ignored. */
void perf_ofi_close(struct perf_ofi *ofi);

/* perf_contender's run. */
int perf_ofi_run(void *self, struct perf_block *block);

#endif
