/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines: how long each phase of one operation took. */
#ifndef STEPAF_TIMELINE_H
#define STEPAF_TIMELINE_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Times of one operation at one FFN rank, in nanoseconds since the operation's start; -1 for an
 *  event that has not happened or is not known. The FFN rank's durations are not known if an answer
 *  over RDMA did not include them: their sum was below that rank's setting STEPAF_TIMES_US. */
typedef struct stepaf_timeline {
    size_t size;         /* in: sizeof(stepaf_timeline_t) */
    int64_t start_ns;    /* on the common clock, see stepaf_clock_ns */
    int64_t notified_ns; /* all passed to the transports: sent, or queued there for lack of space */
    int64_t answered_ns; /* its answer, or its release if none is expected, was received here */
    int64_t ffn_queue_ns; /* duration: from arrival there until received by the caller */
    int64_t ffn_work_ns;  /* duration: from then until answered, or released without an answer */
} stepaf_timeline_t;

/** Report the times of an operation at one FFN rank.
 *
 *  Operations on streams: if the operation goes through the host, the times are those at which the
 *  host noticed that the stream had reached the operation, and that the answer had arrived. If it
 *  goes from GPU to GPU, with STEPAF_STREAM_TIMES=on, the times are the GPU's: notified_ns when its
 *  stream had sent everything, answered_ns when its stream, waiting, found the answer; -1 for the
 *  FFN rank's durations, and for answered_ns if the plan does not need all answers.
 *  @param request     of an operation; also after the wait, until its slot is started again.
 *  @param ffn_rank    within the FFN group; one of this rank's peers.
 *  @param timeline_p  filled; the caller sets its size field.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (@a ffn_rank, or @a timeline_p is NULL,
 *  or its size is too small); STEPAF_ERR_UNSUPPORTED (without STEPAF_STREAM_TIMES=on, an operation
 *  on streams whose tensors go from GPU to GPU, or of a plan in graphs that are replayed: only the
 *  GPU knows its times).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_timeline_query(stepaf_request_h request, int ffn_rank,
                                                 stepaf_timeline_t *timeline_p);

#ifdef __cplusplus
}
#endif
#endif
