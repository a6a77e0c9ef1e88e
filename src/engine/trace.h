/* SPDX-License-Identifier: Apache-2.0 */
/* The trace ring: a fixed number of stamps, the oldest overwritten. */
#ifndef STEPAF_ENGINE_TRACE_H
#define STEPAF_ENGINE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include <stepaf/trace.h>

enum { STEPAF_TRACE_ALL = 0xffff, STEPAF_TRACE_WHOLE = 0xff };

struct stepaf_trace_entry {
    uint64_t ticks;
    uint32_t seq;
    uint32_t bytes;
    uint16_t plan;
    uint16_t peer;  /* STEPAF_TRACE_ALL: no one in particular */
    uint8_t event;  /* stepaf_event_t */
    uint8_t tensor; /* STEPAF_TRACE_WHOLE: none in particular */
    uint8_t spare[10];
};

_Static_assert(sizeof(struct stepaf_trace_entry) == 32, "two entries a cache line");

struct stepaf_trace {
    struct stepaf_trace_entry *ring; /* NULL: switched off */
    uint64_t mask;
    uint64_t head; /* entries written, ever */
    uint64_t tail; /* entries forgotten by stepaf_trace_clear */
};

bool stepaf_trace_open(struct stepaf_trace *trace, uint32_t records);
void stepaf_trace_close(struct stepaf_trace *trace);

static inline void stepaf_trace_stamp(struct stepaf_trace *trace, stepaf_event_t event,
                                      uint64_t ticks, uint32_t plan, uint32_t seq, uint32_t peer,
                                      uint32_t tensor, uint32_t bytes)
{
    if (!trace->ring)
        return;
    struct stepaf_trace_entry *entry = &trace->ring[trace->head++ & trace->mask];
    entry->ticks = ticks;
    entry->seq = seq;
    entry->bytes = bytes;
    entry->plan = (uint16_t)plan;
    entry->peer = (uint16_t)peer;
    entry->event = (uint8_t)event;
    entry->tensor = (uint8_t)tensor;
}

#endif
