/* SPDX-License-Identifier: Apache-2.0 */
/* The last word of a commit. */
#ifndef STEPAF_WIREUP_READY_H
#define STEPAF_WIREUP_READY_H

#include <stdint.h>

#include <stepaf/status.h>

struct stepaf_ctx;
struct stepaf_peer;

/* Tell a peer how this rank has come into @a epoch. */
void stepaf_send_ready(struct stepaf_peer *peer, uint32_t epoch, stepaf_status_t status);
/* Tell every peer of every plan that can be used, and wait until all are ready. */
stepaf_status_t stepaf_commit_handshake(struct stepaf_ctx *ctx, int64_t deadline_ns);

#endif
