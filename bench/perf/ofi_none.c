/* SPDX-License-Identifier: Apache-2.0 */
/* Without libfabric's headers there are no libfabric links, and no floor. */
#include "fail.h"
#include "ofi.h"

int perf_ofi_built(void)
{
    return 0;
}

int perf_ofi_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_case *c, const struct perf_place *place,
                  const struct perf_buffers *buffers, const char *link, struct perf_ofi **ofi_p)
{
    (void)job, (void)options, (void)c, (void)place, (void)buffers, (void)link, (void)ofi_p;
    return perf_fail("this build has no libfabric");
}

void perf_ofi_close(struct perf_ofi *ofi)
{
    (void)ofi;
}

int perf_ofi_run(void *self, struct perf_block *block)
{
    (void)self, (void)block;
    return perf_fail("this build has no libfabric");
}
