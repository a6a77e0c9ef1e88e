/* SPDX-License-Identifier: Apache-2.0 */
/* What has come into bounce buffers, on its way into GPU memory.
 *
 * The copies are enqueued on a stream of the library's own. A batch or an answer is ARRIVING until
 * they have passed, which the thread that polls asks for and never waits for: the GPU may be
 * waiting for that thread, where streams have proxied peers. */
#ifndef STEPAF_GPU_BOUNCE_IN_H
#define STEPAF_GPU_BOUNCE_IN_H

#include "base/error.h"

struct stepaf_batch_obj;
struct stepaf_bounce_in;
struct stepaf_ctx;
struct stepaf_op;
struct stepaf_peer;
struct stepaf_remote_plan;

/* Commit: there is a bounce buffer. */
stepaf_status_t stepaf_bounce_in_open(struct stepaf_ctx *ctx);
/* As op_bring and batch_bring of the feature. */
stepaf_status_t stepaf_bounce_in_op(struct stepaf_op *op, struct stepaf_peer *peer);
stepaf_status_t stepaf_bounce_in_batch(struct stepaf_batch_obj *batch);
/* Hand on what is in GPU memory by now; return how much. */
unsigned stepaf_bounce_in_progress(struct stepaf_ctx *ctx);
/* The batches of a remote plan go. */
void stepaf_bounce_in_forget(const struct stepaf_remote_plan *remote);
/* Wait until no copy is under way. */
void stepaf_bounce_in_sync(const struct stepaf_ctx *ctx);
void stepaf_bounce_in_free(struct stepaf_ctx *ctx);

#endif
