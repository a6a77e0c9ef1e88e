/* SPDX-License-Identifier: Apache-2.0 */
/* The data of one rank for another at a place of the window, as pieces of memory, for contenders
 * that use a network directly. */
#ifndef PERF_PARTS_H
#define PERF_PARTS_H

#include <sys/uio.h>

#include "buffers.h"
#include "case.h"
#include "place.h"

/* One message: the tensors that are not empty, each with its place at this side. */
struct perf_parts {
    struct iovec iov[PERF_MAX_PUSH];
    int n;
    size_t bytes;
};

/* Get what attention rank @a a pushes to FFN rank @a f at place @a w; *parts_p must be empty. */
void perf_parts_push(const struct perf_case *c, const struct perf_place *place,
                     const struct perf_buffers *buffers, int a, int f, unsigned w,
                     struct perf_parts *parts_p);

/* Get the answer. */
void perf_parts_pull(const struct perf_case *c, const struct perf_place *place,
                     const struct perf_buffers *buffers, int a, int f, unsigned w,
                     struct perf_parts *parts_p);

#endif
