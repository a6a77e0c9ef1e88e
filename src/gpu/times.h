/* SPDX-License-Identifier: Apache-2.0 */
/* When streams reached the points of a plan's operations, with STEPAF_STREAM_TIMES=on. Kernels take
 * timestamps (device/kernels.h). The host reads them where it looks for dead peers, or when it is
 * asked for their contents. They become what the host's own operations leave: records of the trace,
 * timelines, counters, histograms, and operations reported to watchers.
 *
 *   times.c        a plan's timestamps: their memory, and what is enqueued
 *   times_read.c   what they say
 *   times_clock.c  from the GPU's clock to this rank's
 *
 * Operations are counted from the commit, and so at all ranks alike, in graphs too. */
#ifndef STEPAF_GPU_TIMES_H
#define STEPAF_GPU_TIMES_H

#include "core/op.h"
#include "gpu/stream.h"

enum { STEPAF_TIMES_NONE = 0xffff /* the number of a plan that is not on streams at the peer */ };

/* What is known of one of the last operations. Times in ticks of this rank. */
struct stepaf_times_slot {
    struct stepaf_op op; /* attention: as if the host had started it */
    bool is_named;
    uint32_t name;      /* with is_named: the request's operation */
    uint64_t began;     /* STEPAF_PLAN_ANY: start of the wait for what peers send; 0: not yet */
    uint64_t handled;   /* end of the operation; 0: not yet */
    uint64_t *arrived;  /* per peer; 0: not yet, or not known */
    uint64_t *unlooked; /* of each peer: for so long before it the stream had not looked;
                         * STEPAF_UNLOOKED: not known */
    uint32_t peer, seq; /* STEPAF_PLAN_ANY: the batch's peer, and its number at that peer */
};

/* The timestamps of a stream plan and commit. */
struct stepaf_times {
    uint64_t next;        /* next number of the ring to read */
    uint64_t n_overtaken; /* timestamps not read because the ring was full */
    uint32_t seq;         /* number of the last operation that was read */
    struct {
        uint64_t time; /* of the GPU's clock, with as many bits as a timestamp has */
        uint64_t ticks;
    } last;          /* the last timestamp that was read */
    uint64_t looked; /* STEPAF_PLAN_ANY: end of the last wait; 0: none yet */
    uint32_t n_slots;
    struct stepaf_times_slot *slots;
    struct stepaf_op_peer *op_peers;        /* attention: of all slots */
    uint64_t *ticks;                        /* of all slots: memory of arrived and unlooked */
    struct stepaf_timestamp_args point;     /* args that all timestamps have in common */
    struct stepaf_timestamp_args *arrivals; /* of each launch, slot by slot; NULL: not looked for */
};

/* Return whether the plan's operations leave timestamps; the bytes of GPU memory for them; the
 * bytes of the ring. */
bool stepaf_times_wanted(const struct stepaf_stream *stream);
uint64_t stepaf_times_control_bytes(const struct stepaf_stream *stream);
uint64_t stepaf_times_ring_bytes(const struct stepaf_ctx *ctx);
/* Commit: begin timestamps, after the plan's launches are compiled. @a control and @a ring are
 * zeroed; @a ring is pinned. If timestamps are not possible, this is logged, and the plan takes
 * none. */
void stepaf_times_begin(struct stepaf_stream *stream, uint8_t *control,
                        struct stepaf_timestamp *ring);
void stepaf_times_free(struct stepaf_times *times);

/* Hot: enqueue a timestamp of a point of an operation, if wanted; *begun_p: it is enqueued.
 * @a name: NULL, or the request's operation. */
stepaf_status_t stepaf_times_enqueue(const struct stepaf_stream *stream,
                                     enum stepaf_timestamp_kind kind, uint8_t slot,
                                     const uint32_t *name, void *cuda_stream, bool *begun_p);
static inline stepaf_status_t stepaf_times_note(const struct stepaf_stream *stream,
                                                enum stepaf_timestamp_kind kind, uint8_t slot,
                                                const uint32_t *name, void *cuda_stream,
                                                bool *begun_p)
{
    return __builtin_expect(!stream->times, 1)
               ? STEPAF_OK
               : stepaf_times_enqueue(stream, kind, slot, name, cuda_stream, begun_p);
}
/* Hot: enqueue timestamps of arrivals, if wanted, before the gate of launch @a k, in order. */
stepaf_status_t stepaf_times_enqueue_arrivals(const struct stepaf_stream *stream, uint8_t slot,
                                              uint32_t k, void *cuda_stream, bool *begun_p);
static inline stepaf_status_t stepaf_times_note_arrivals(const struct stepaf_stream *stream,
                                                         uint8_t slot, uint32_t k,
                                                         void *cuda_stream, bool *begun_p)
{
    return __builtin_expect(!stream->times, 1)
               ? STEPAF_OK
               : stepaf_times_enqueue_arrivals(stream, slot, k, cuda_stream, begun_p);
}

#endif
