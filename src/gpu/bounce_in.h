/* SPDX-License-Identifier: Apache-2.0 */
/* Data that has arrived in bounce buffers, on the way into GPU memory.
 *
 * The copies are enqueued on a stream of the library's own. A batch or an answer is ARRIVING until
 * its copies have passed. The thread that polls asks for that and never waits: where streams have
 * proxied peers, the GPU may be waiting for that thread. */
#ifndef STEPAF_GPU_BOUNCE_IN_H
#define STEPAF_GPU_BOUNCE_IN_H

#include "base/error.h"

struct stepaf_batch_obj;
struct stepaf_bounce_in;
struct stepaf_ctx;
struct stepaf_op;
struct stepaf_peer;
struct stepaf_remote_plan;

/* Commit: set up, since there is a bounce buffer. */
stepaf_status_t stepaf_bounce_in_open(struct stepaf_ctx *ctx);
/* The `op_bring` and `batch_bring` functions of the feature. */
stepaf_status_t stepaf_bounce_in_op(struct stepaf_op *op, struct stepaf_peer *peer);
stepaf_status_t stepaf_bounce_in_batch(struct stepaf_batch_obj *batch);
/* Hand on what has reached GPU memory; return how many. */
unsigned stepaf_bounce_in_progress(struct stepaf_ctx *ctx);
/* Forget the batches of a remote plan that ends. */
void stepaf_bounce_in_forget(const struct stepaf_remote_plan *remote);
/* Wait until no copy is in flight. */
void stepaf_bounce_in_sync(const struct stepaf_ctx *ctx);
void stepaf_bounce_in_free(struct stepaf_ctx *ctx);

#endif
