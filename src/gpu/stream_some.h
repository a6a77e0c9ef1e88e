/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans of attention ranks of which some answers complete an operation:
 * stepaf_plan_set_answers.
 *
 * They have kernels of their own (the end of device/kernels.h). A start begins with a wait for
 * those who are late in its slot, and what they have sent; so a peer has given back its slot, or
 * nothing is sent to it. */
#ifndef STEPAF_GPU_STREAM_SOME_H
#define STEPAF_GPU_STREAM_SOME_H

#include "gpu/stream.h"

/* From the next commit on, @a n answers are enough, as of stepaf_plan_need. */
stepaf_status_t stepaf_some_set(struct stepaf_stream *stream, uint32_t n, int64_t patience_us);
/* Whether that commit makes the plan such a one. */
bool stepaf_some_is_asked(const struct stepaf_stream *stream);
/* Bytes of control memory that it needs, behind what every plan has. */
uint64_t stepaf_some_control_bytes(const struct stepaf_stream *stream);

/* Commit: after the kernel args are compiled, tell them of @a control; then write what is there at
 * first. */
void stepaf_some_compile(struct stepaf_stream *stream, uint8_t *control);
stepaf_status_t stepaf_some_begin(const struct stepaf_stream *stream);

/* Whether the plan goes on without those peers that are lost. */
bool stepaf_some_goes_on(const struct stepaf_stream *stream);
/* How many may be lost without an operation failing. */
uint32_t stepaf_some_spare(const struct stepaf_stream *stream);
/* A peer is lost, and the plan goes on: its streams do not wait for it. */
void stepaf_some_lose(const struct stepaf_stream *stream, uint32_t peer);
/* The request of an operation that is complete: who has answered. */
void stepaf_some_note(const struct stepaf_stream *stream, struct stepaf_op *op);

/* Hot: enqueue what a start in @a slot begins with. *begun_p: some of it is enqueued. */
stepaf_status_t stepaf_some_settle(const struct stepaf_stream *stream, uint8_t slot,
                                   void *cuda_stream, bool *begun_p);

#endif
