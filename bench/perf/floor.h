/* SPDX-License-Identifier: Apache-2.0 */
/* The floor: the cost of the same pattern with nothing but the necessary work. Each tensor is
 * one memcpy straight into the receiver's buffer, then a flag in a cache line of its own; the
 * receiver spins on the flag. No queue, no checks, no deadlines, no lost peers. */
#ifndef PERF_FLOOR_H
#define PERF_FLOOR_H

#include <stdint.h>

#include "buffers.h"
#include "case.h"
#include "contender.h"
#include "job.h"
#include "place.h"

/* The work of this rank with one peer for one place of the window, computed in advance. */
struct perf_lane {
    uint32_t *in, *out; /* flags: the peer's and this rank's */
    uint32_t count;     /* attention: operations started; FFN: received */
    int n_copies;
    struct {
        void *to;
        const void *from;
        size_t bytes;
    } copies[PERF_MAX_PUSH];
};

struct perf_floor {
    const struct perf_case *c;
    const struct perf_place *place;
    const struct perf_buffers *buffers; /* sources */
    int recv_each;
    unsigned spins; /* polls before a waiting rank yields */
    char *map;
    size_t map_bytes;
    /* Offsets in the map, by attention rank, FFN rank and place. */
    size_t push_start, push_stride, push_offset[PERF_MAX_PUSH];
    size_t pull_start, pull_stride;
    struct perf_lane *lanes; /* n_peers for each place */
    int n_peers;             /* attention: active FFN ranks; FFN: attention ranks, or 0 */
};

/* Share memory between all ranks. Collective; -1 with a sentence on every rank, also where they
 * are not on one node. */
int perf_floor_open(struct perf_job *job, const struct perf_options *options,
                    const struct perf_case *c, const struct perf_place *place,
                    const struct perf_buffers *buffers, struct perf_floor *floor_p);

void perf_floor_close(struct perf_floor *floor);

/* perf_contender's run. */
int perf_floor_run(void *self, struct perf_block *block);

#endif
