/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank has for another at a place of the window, as pieces of memory, for contenders that
 * speak to a network by themselves. */
#ifndef PERF_PARTS_H
#define PERF_PARTS_H

#include <sys/uio.h>

#include "buffers.h"
#include "case.h"
#include "place.h"

/* One message: the tensors that are not empty, each with its place at the side that this is. */
struct perf_parts {
    struct iovec iov[PERF_MAX_PUSH];
    int n;
    size_t bytes;
};

/* What attention rank @a a pushes to FFN rank @a f at place @a w; *parts_p is empty before. */
void perf_parts_push(const struct perf_case *c, const struct perf_place *place,
                     const struct perf_buffers *buffers, int a, int f, unsigned w,
                     struct perf_parts *parts_p);

/* What comes back. */
void perf_parts_pull(const struct perf_case *c, const struct perf_place *place,
                     const struct perf_buffers *buffers, int a, int f, unsigned w,
                     struct perf_parts *parts_p);

#endif
