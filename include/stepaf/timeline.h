/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines: where the time of one operation went. */
#ifndef STEPAF_TIMELINE_H
#define STEPAF_TIMELINE_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The times of one operation at one FFN rank, in nanoseconds since its start; -1 for what has not happened
 *  or is not known. The FFN rank's durations are not known where an answer over RDMA did not tell them: together
 *  they were shorter than that rank's setting STEPAF_TIMES_US. */
typedef struct stepaf_timeline {
    size_t size;          /* in: sizeof(stepaf_timeline_t) */
    int64_t start_ns;     /* on the common clock, see stepaf_clock_ns */
    int64_t notified_ns;  /* all passed to the transports: on its way, or waiting for room there */
    int64_t answered_ns;  /* its answer, or its release where none is expected, was taken in here */
    int64_t ffn_queue_ns; /* duration: arrived there until received by the caller */
    int64_t ffn_work_ns;  /* duration: received by the caller until answered or just released */
} stepaf_timeline_t;

/** Report where the time of an operation went at one FFN rank.
 *  @param request     of an operation; also after the wait, until its slot is started again.
 *  @param ffn_rank    within the FFN group; one of this rank's peers.
 *  @param timeline_p  filled; its size is set by the caller.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (@a ffn_rank, or @a timeline_p is
 *  NULL or its size too small); STEPAF_ERR_UNSUPPORTED (an operation on streams whose tensors go from
 *  GPU to GPU, or of a plan in graphs that are replayed: only the GPU knows when it began and ended). Of
 *  an operation on streams that goes by way of the host, the times are those at which the host has seen
 *  that the stream came by, and that the answer had arrived. Never blocks. */
STEPAF_API stepaf_status_t stepaf_timeline_query(stepaf_request_h request, int ffn_rank,
                                                 stepaf_timeline_t *timeline_p);

#ifdef __cplusplus
}
#endif
#endif
