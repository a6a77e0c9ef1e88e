/* SPDX-License-Identifier: Apache-2.0 */
/* The trace ring: a fixed number of stamps, the oldest overwritten. */
#ifndef STEPAF_CORE_TRACE_H
#define STEPAF_CORE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stepaf/trace.h>

enum {
    STEPAF_TRACE_ALL = 0xffff,
    STEPAF_TRACE_EACH = 0xfffe, /* the same of each peer: is read as so many records */
    STEPAF_TRACE_WHOLE = 0xff,
    /* In an entry's event: records of the same time and operation, to be read before it and
     * after. */
    STEPAF_TRACE_EVENT = 0x1f,
    STEPAF_TRACE_STARTED = 0x20,   /* START, then this */
    STEPAF_TRACE_NOTIFIED = 0x40,  /* this, then NOTIFIED of the same peers */
    STEPAF_TRACE_RELEASED = 0x40,  /* with RESPONDED: this, then RELEASED of the same peer */
    STEPAF_TRACE_COMPLETED = 0x80, /* this, then COMPLETED */
};

_Static_assert((int)STEPAF_EVENT_LAST <= (int)STEPAF_TRACE_EVENT, "events leave room for the bits");

struct stepaf_trace_saver;

struct stepaf_trace_entry {
    uint64_t ticks;
    uint32_t seq;
    uint32_t bytes;
    uint16_t plan;
    uint16_t peer;  /* STEPAF_TRACE_ALL: no one in particular; STEPAF_TRACE_EACH */
    uint8_t event;  /* stepaf_event_t, and what is stamped with it */
    uint8_t tensor; /* STEPAF_TRACE_WHOLE: none in particular */
    uint8_t spare[10];
};

_Static_assert(sizeof(struct stepaf_trace_entry) == 32, "two entries a cache line");
_Static_assert(offsetof(struct stepaf_trace_entry, bytes) == 12 &&
                   offsetof(struct stepaf_trace_entry, peer) == 18 &&
                   offsetof(struct stepaf_trace_entry, tensor) == 21,
               "stepaf_trace_put writes 64-bit words");

struct stepaf_trace {
    struct stepaf_trace_entry *ring; /* NULL: switched off */
    uint64_t mask;
    uint64_t head;   /* entries written, ever */
    uint64_t tail;   /* entries forgotten by stepaf_trace_clear */
    uint32_t number; /* contexts of this process before this one: the same at all ranks */
    bool heeds;      /* signals, see trace_signal.h */
    uint32_t n_heeded;
    uint32_t n_signals_before;        /* that the others had had when this process came */
    struct stepaf_trace_saver *saver; /* of the last signal's file; NULL: it is done */
};

bool stepaf_trace_open(struct stepaf_trace *trace, uint32_t records);
void stepaf_trace_close(struct stepaf_trace *trace);

/* For several entries of one operation at one time: what they have in common. */
struct stepaf_trace_cursor {
    struct stepaf_trace_entry *ring; /* NULL: nothing is to be written */
    uint64_t mask;
    uint64_t head;
    uint64_t ticks;
    uint32_t plan;
    uint32_t seq;
};

static inline struct stepaf_trace_cursor stepaf_trace_begin(const struct stepaf_trace *trace,
                                                            uint64_t ticks, uint32_t plan,
                                                            uint32_t seq)
{
    return (struct stepaf_trace_cursor){.ring = trace->ring,
                                        .mask = trace->mask,
                                        .head = trace->head,
                                        .ticks = ticks,
                                        .plan = plan & 0xffff,
                                        .seq = seq};
}

/* What an entry says beside time, sequence and bytes, as one word. Little-endian, as messages
 * are. */
static inline uint64_t stepaf_trace_word(uint32_t event, uint32_t plan, uint32_t peer,
                                         uint32_t tensor)
{
    return (uint64_t)tensor << 40 | (uint64_t)event << 32 | (uint64_t)peer << 16 | (plan & 0xffff);
}

/* A word that is there already, but for an event or what is stamped with one. */
static inline uint64_t stepaf_trace_word_with(uint64_t word, uint32_t event)
{
    return word | (uint64_t)event << 32;
}

/* Few and wide stores: an operation makes several entries. */
static inline void stepaf_trace_put(struct stepaf_trace_entry *entry, uint64_t ticks, uint32_t seq,
                                    uint32_t bytes, uint64_t word)
{
    uint64_t middle = (uint64_t)bytes << 32 | seq;

    entry->ticks = ticks;
    __builtin_memcpy((char *)entry + 8, &middle, sizeof(middle));
    __builtin_memcpy((char *)entry + 16, &word, sizeof(word));
}

static inline void stepaf_trace_write(struct stepaf_trace_cursor *pen, uint32_t event,
                                      uint32_t peer, uint32_t tensor, uint32_t bytes)
{
    stepaf_trace_put(&pen->ring[pen->head++ & pen->mask], pen->ticks, pen->seq, bytes,
                     stepaf_trace_word(event, pen->plan, peer, tensor));
}

static inline void stepaf_trace_end(struct stepaf_trace *trace,
                                    const struct stepaf_trace_cursor *pen)
{
    trace->head = pen->head;
}

static inline void stepaf_trace_stamp(struct stepaf_trace *trace, uint32_t event, uint64_t ticks,
                                      uint32_t plan, uint32_t seq, uint32_t peer, uint32_t tensor,
                                      uint32_t bytes)
{
    struct stepaf_trace_cursor pen = stepaf_trace_begin(trace, ticks, plan, seq);

    if (!pen.ring)
        return;
    stepaf_trace_write(&pen, event, peer & 0xffff, tensor & 0xff, bytes);
    stepaf_trace_end(trace, &pen);
}

/* Stamp an entry whose word is there already, without bytes. */
static inline void stepaf_trace_stamp_word(struct stepaf_trace *trace, uint64_t ticks, uint32_t seq,
                                           uint64_t word)
{
    if (trace->ring)
        stepaf_trace_put(&trace->ring[trace->head++ & trace->mask], ticks, seq, 0, word);
}

#endif
