/* SPDX-License-Identifier: Apache-2.0 */
/* Without UCX's headers there are no links of it, and no floor. */
#include "fail.h"
#include "ucx.h"

int perf_ucx_built(void)
{
    return 0;
}

int perf_ucx_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_case *c, const struct perf_place *place,
                  const struct perf_buffers *buffers, struct perf_ucx **ucx_p)
{
    (void)job, (void)options, (void)c, (void)place, (void)buffers, (void)ucx_p;
    return perf_fail("this build has no UCX");
}

void perf_ucx_close(struct perf_ucx *ucx)
{
    (void)ucx;
}

int perf_ucx_run(void *self, struct perf_block *block)
{
    (void)self, (void)block;
    return perf_fail("this build has no UCX");
}
