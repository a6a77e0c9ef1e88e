/* SPDX-License-Identifier: Apache-2.0 */
#include "parts.h"

static void add(struct perf_parts *parts, void *data, size_t bytes)
{
    if (bytes == 0)
        return;
    parts->iov[parts->n++] = (struct iovec){data, bytes};
    parts->bytes += bytes;
}

void perf_parts_push(const struct perf_case *c, const struct perf_place *place,
                     const struct perf_buffers *buffers, int a, int f, unsigned w,
                     struct perf_parts *parts_p)
{
    unsigned m = w % c->microbatches;

    for (int t = 0; t < c->n_push; t++) {
        size_t offset;
        size_t bytes = perf_case_slice(c, &c->push[t], f, &offset);
        char *data = place->role == STEPAF_ATTENTION
                         ? perf_buffers_push(buffers, m, t) + offset
                         : perf_buffers_recv(buffers, m, t) + (size_t)a * buffers->push_stride[t] +
                               w / c->microbatches * perf_case_largest(c, &c->push[t], NULL);

        add(parts_p, data, bytes);
    }
}

void perf_parts_pull(const struct perf_case *c, const struct perf_place *place,
                     const struct perf_buffers *buffers, int a, int f, unsigned w,
                     struct perf_parts *parts_p)
{
    char *data;

    if (c->n_pull == 0)
        return;
    data = place->role == STEPAF_FFN
               ? perf_buffers_answer(buffers, a, w)
               : perf_buffers_pull(buffers, w % c->microbatches, f) +
                     w / c->microbatches * perf_case_largest(c, &c->pull, NULL);
    add(parts_p, data, perf_case_slice(c, &c->pull, f, NULL));
}
