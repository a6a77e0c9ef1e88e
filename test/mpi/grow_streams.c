/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of plans on streams, which know the place of a rank from the beginning that is not
 * there yet. */
#include <stdlib.h>

#include "grow.h"
#include "member_streams.h"

enum { OPS = 6 };

static struct member_streams streams; /* a process is one rank */

void grow_begin(const struct rank *rank)
{
    streams.job = rank->job;
    member_streams_begin(&streams);
}

void grow_end(const struct rank *rank)
{
    member_streams_end(rank->job);
}

bool grow_prepare(const struct rank *rank)
{
    (void)rank;
    return member_streams_prepare(&streams);
}

bool grow_work(struct rank *rank, int n)
{
    const struct hs_job *job = rank->job;
    stepaf_group_t group =
        job->role == STEPAF_ATTENTION ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;

    for (int p = 0; p < job->peers; p++)
        streams.is_out[p] =
            n == job->size / 2 &&
            stepaf_world_rank(job->ctx, group, stepaf_peer_rank(job->ctx, p)) >= job->size;
    if (!rank->n_works && !member_streams_mark(&streams))
        return false;
    for (uint64_t i = 0; i < OPS; i++) {
        if (!member_streams_operate(&streams, i, (uint64_t)rank->n_works * 100 + i))
            return false;
        grow_note_first_use(rank);
    }
    return !hs_failed();
}

void grow_go_wrong(bool is_wrong)
{
    if (is_wrong) {
        setenv("STEPAF_CUDA_PROXY", "always", 1);
        setenv("STEPAF_PROGRESS", "thread", 1);
    } else {
        unsetenv("STEPAF_CUDA_PROXY");
        unsetenv("STEPAF_PROGRESS");
    }
}
