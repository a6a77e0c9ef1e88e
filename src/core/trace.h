/* SPDX-License-Identifier: Apache-2.0 */
/* The trace ring: a fixed number of entries, the oldest overwritten. */
#ifndef STEPAF_CORE_TRACE_H
#define STEPAF_CORE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stepaf/trace.h>

enum {
    STEPAF_TRACE_ALL = 0xffff,
    STEPAF_TRACE_EACH = 0xfffe, /* same for each peer: read as one record per peer */
    STEPAF_TRACE_WHOLE = 0xff,
    /* Bits in an entry's event: further records of the same time and operation, to be read before
     * or after it. */
    STEPAF_TRACE_EVENT = 0x1f,
    STEPAF_TRACE_STARTED = 0x20,   /* START, then this event */
    STEPAF_TRACE_NOTIFIED = 0x40,  /* this event, then NOTIFIED of the same peers */
    STEPAF_TRACE_RELEASED = 0x40,  /* with RESPONDED: this event, then RELEASED of the same peer */
    STEPAF_TRACE_COMPLETED = 0x80, /* this event, then COMPLETED */
};

_Static_assert((int)STEPAF_EVENT_LAST <= (int)STEPAF_TRACE_EVENT, "events leave room for the bits");

struct stepaf_trace_saver;

struct stepaf_trace_entry {
    uint64_t ticks;
    uint32_t seq;
    uint32_t bytes;
    uint16_t plan;
    uint16_t peer;  /* STEPAF_TRACE_ALL: none in particular; STEPAF_TRACE_EACH */
    uint8_t event;  /* stepaf_event_t, and the events stamped with it */
    uint8_t tensor; /* STEPAF_TRACE_WHOLE: none in particular */
    uint8_t spare[10];
};

_Static_assert(sizeof(struct stepaf_trace_entry) == 32, "two entries a cache line");
_Static_assert(offsetof(struct stepaf_trace_entry, bytes) == 12 &&
                   offsetof(struct stepaf_trace_entry, peer) == 18 &&
                   offsetof(struct stepaf_trace_entry, tensor) == 21,
               "stepaf_trace_put writes 64-bit words");

struct stepaf_trace {
    struct stepaf_trace_entry *next; /* entry to write next; NULL: tracing is off */
    struct stepaf_trace_entry *ring, *end;
    uint64_t laps;   /* how often the ring has filled up */
    uint64_t tail;   /* entries ever written that stepaf_trace_clear has discarded */
    uint32_t number; /* contexts of this process before this one: the same at all ranks */
    bool heeds;      /* reacts to signals, see trace_signal.h */
    uint32_t n_heeded;
    uint32_t n_signals_before;        /* signals at the other ranks before this process joined */
    struct stepaf_trace_saver *saver; /* of the last signal's file; NULL: done */
};

bool stepaf_trace_open(struct stepaf_trace *trace, uint32_t records);
void stepaf_trace_close(struct stepaf_trace *trace);

/* Return the capacity in entries: a power of two, or 0. */
static inline uint64_t stepaf_trace_size(const struct stepaf_trace *trace)
{
    return trace->ring ? (uint64_t)(trace->end - trace->ring) : 0;
}

/* Return the number of entries ever written. */
static inline uint64_t stepaf_trace_head(const struct stepaf_trace *trace)
{
    return trace->ring
               ? trace->laps * stepaf_trace_size(trace) + (uint64_t)(trace->next - trace->ring)
               : 0;
}

/* Return how many of the last @a most entries exist and are not discarded. */
static inline uint64_t stepaf_trace_kept(const struct stepaf_trace *trace, uint64_t most)
{
    uint64_t size = stepaf_trace_size(trace), kept = stepaf_trace_head(trace) - trace->tail;

    if (most > size)
        most = size;
    return kept < most ? kept : most;
}

/* Return entry number @a at of those ever written, which must exist. */
static inline const struct stepaf_trace_entry *stepaf_trace_entry(const struct stepaf_trace *trace,
                                                                  uint64_t at)
{
    return &trace->ring[at & (stepaf_trace_size(trace) - 1)];
}

/* Encode an entry's fields except time, sequence and bytes as one word. Little-endian, as messages
 * are. */
static inline uint64_t stepaf_trace_word(uint32_t event, uint32_t plan, uint32_t peer,
                                         uint32_t tensor)
{
    return (uint64_t)tensor << 40 | (uint64_t)event << 32 | (uint64_t)peer << 16 | (plan & 0xffff);
}

/* Add an event, or an event stamped with another, to a word. */
static inline uint64_t stepaf_trace_word_with(uint64_t word, uint32_t event)
{
    return word | (uint64_t)event << 32;
}

/* Write an entry, if the trace is on. Uses few, wide stores: an operation writes several
 * entries. */
static inline void stepaf_trace_put(struct stepaf_trace *trace, uint64_t ticks, uint32_t seq,
                                    uint32_t bytes, uint64_t word)
{
    struct stepaf_trace_entry *entry = trace->next;
    uint64_t middle = (uint64_t)bytes << 32 | seq;

    if (!entry)
        return;
    entry->ticks = ticks;
    __builtin_memcpy((char *)entry + 8, &middle, sizeof(middle));
    __builtin_memcpy((char *)entry + 16, &word, sizeof(word));
    trace->next = entry + 1;
    if (__builtin_expect(entry + 1 == trace->end, 0)) {
        trace->next = trace->ring;
        trace->laps++;
    }
}

static inline void stepaf_trace_stamp(struct stepaf_trace *trace, uint32_t event, uint64_t ticks,
                                      uint32_t plan, uint32_t seq, uint32_t peer, uint32_t tensor,
                                      uint32_t bytes)
{
    stepaf_trace_put(trace, ticks, seq, bytes,
                     stepaf_trace_word(event, plan, peer & 0xffff, tensor & 0xff));
}

#endif
