/* SPDX-License-Identifier: Apache-2.0 */
/* READY: the last message of a commit. */
#ifndef STEPAF_WIREUP_READY_H
#define STEPAF_WIREUP_READY_H

#include <stdint.h>

#include <stepaf/status.h>

struct stepaf_ctx;
struct stepaf_peer;

/* Tell a peer with which status this rank has entered @a epoch. */
void stepaf_send_ready(struct stepaf_peer *peer, uint32_t epoch, stepaf_status_t status);
/* Announce every usable plan to every peer, and wait until all peers are ready. */
stepaf_status_t stepaf_commit_handshake(struct stepaf_ctx *ctx, int64_t deadline_ns);

#endif
