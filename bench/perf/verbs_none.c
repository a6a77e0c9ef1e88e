/* SPDX-License-Identifier: Apache-2.0 */
/* Without libibverbs there are no links of RDMA, and no floor of it. */
#include "fail.h"
#include "verbs.h"

int perf_verbs_built(void)
{
    return 0;
}

int perf_verbs_open(struct perf_job *job, const struct perf_options *options,
                    const struct perf_case *c, const struct perf_place *place,
                    const struct perf_buffers *buffers, const char *link,
                    struct perf_verbs **verbs_p)
{
    (void)job, (void)options, (void)c, (void)place, (void)buffers, (void)link, (void)verbs_p;
    return perf_fail("this build has no libibverbs");
}

void perf_verbs_close(struct perf_verbs *verbs)
{
    (void)verbs;
}

int perf_verbs_run(void *self, struct perf_block *block)
{
    (void)self, (void)block;
    return perf_fail("this build has no libibverbs");
}
