/* SPDX-License-Identifier: Apache-2.0 */
#include "buffers.h"

#include <stdlib.h>
#include <string.h>

#include <stepaf/memory.h>

#include "check.h"
#include "fail.h"

enum { LINES = 128, PAGE = 4096, HUGE_PAGE = 2 << 20 };

/* Tensors of at least a page begin on a page; small ones share no pair of cache lines, as
 * different ranks write to neighbours. */
static size_t aligned(size_t bytes)
{
    size_t unit = bytes >= PAGE ? PAGE : LINES;

    return (bytes + unit - 1) / unit * unit;
}

void perf_buffers_lay_out(const struct perf_case *c, const struct perf_place *place,
                          struct perf_buffers *b)
{
    int ffn = place->role == STEPAF_FFN;
    size_t end = 0;

    *b = (struct perf_buffers){.c = c, .role = place->role};
    for (int t = 0; t < c->n_push; t++) {
        size_t largest = perf_case_largest(c, &c->push[t], NULL);
        size_t copies = c->microbatches * (ffn ? (size_t)c->attn : 1);

        /* A source is the whole tensor; a receive slice has depth buffers of a slice. */
        b->push_start[t] = end;
        b->push_stride[t] = aligned(ffn ? c->depth * largest : c->push[t].bytes);
        end += aligned(copies * b->push_stride[t]);
    }
    if (c->n_pull > 0) {
        size_t largest = perf_case_largest(c, &c->pull, NULL);
        size_t copies =
            ffn ? (size_t)c->attn * c->window : (size_t)c->microbatches * (size_t)c->ffn;

        b->pull_start = (end + PAGE - 1) / PAGE * PAGE;
        b->pull_stride = aligned(ffn ? largest : c->depth * largest);
        end = b->pull_start + copies * b->pull_stride;
    }
    b->bytes = (end + PAGE - 1) / PAGE * PAGE;
}

int perf_buffers_open(const struct perf_case *c, const struct perf_place *place,
                      stepaf_context_h ctx, int user_memory, struct perf_buffers *buffers_p)
{
    struct perf_buffers b;
    stepaf_status_t status = STEPAF_OK;
    void *memory = NULL;

    perf_buffers_lay_out(c, place, &b);
    if (ctx != NULL && !user_memory) {
        status = stepaf_alloc(ctx, b.bytes, STEPAF_MEM_HOST, &memory);
        if (status != STEPAF_OK)
            return perf_fail_status(status, "stepaf_alloc");
    } else {
        memory = aligned_alloc(PAGE, b.bytes);
        if (memory == NULL)
            return perf_fail("out of memory: %zu bytes of tensors", b.bytes);
        b.to_free = memory;
    }
    b.base = memory;
    /* Also touches every page, so that no timed operation meets a page fault. */
    perf_fill(b.base, b.bytes, perf_seed(&(struct perf_origin){.attn = place->rank}));
    if (ctx != NULL && user_memory) {
        status = stepaf_register(ctx, memory, b.bytes);
        if (status != STEPAF_OK) {
            free(b.to_free);
            return perf_fail_status(status, "stepaf_register");
        }
    }
    *buffers_p = b;
    return 0;
}

void perf_buffers_close(struct perf_buffers *buffers)
{
    free(buffers->to_free);
    memset(buffers, 0, sizeof(*buffers));
}
