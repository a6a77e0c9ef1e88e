/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans of attention ranks whose operations are complete when some answers are there
 * (stepaf_plan_set_answers).
 *
 * They have kernels of their own (the end of device/kernels.h). A start begins with a wait for the
 * peers that are late in its slot, and takes their answers. So a peer has given back its slot, or
 * nothing is sent to it. */
#ifndef STEPAF_GPU_STREAM_SOME_H
#define STEPAF_GPU_STREAM_SOME_H

#include "gpu/stream.h"

/* Make @a n answers enough from the next commit on, as in stepaf_plan_need. */
stepaf_status_t stepaf_some_set(struct stepaf_stream *stream, uint32_t n, int64_t patience_us);
/* Return whether the next commit makes the plan such a plan. */
bool stepaf_some_is_asked(const struct stepaf_stream *stream);
/* Return the bytes of control memory that it needs, behind those of every plan. */
uint64_t stepaf_some_control_bytes(const struct stepaf_stream *stream);

/* Commit: compile sets @a control in the kernel args, after these are compiled; begin then writes
 * its initial contents. */
void stepaf_some_compile(struct stepaf_stream *stream, uint8_t *control);
stepaf_status_t stepaf_some_begin(const struct stepaf_stream *stream);

/* Return whether the plan continues without its lost peers. */
bool stepaf_some_goes_on(const struct stepaf_stream *stream);
/* Return how many peers may be lost without an operation failing. */
uint32_t stepaf_some_spare(const struct stepaf_stream *stream);
/* A peer is lost and the plan continues: its streams stop waiting for the peer. */
void stepaf_some_lose(const struct stepaf_stream *stream, uint32_t peer);
/* Note in the request of a complete operation who has answered. */
void stepaf_some_note(const struct stepaf_stream *stream, struct stepaf_op *op);

/* Hot: enqueue what a start in @a slot begins with. *begun_p: some of it is enqueued. */
stepaf_status_t stepaf_some_settle(const struct stepaf_stream *stream, uint8_t slot,
                                   void *cuda_stream, bool *begun_p);

#endif
