/* SPDX-License-Identifier: Apache-2.0 */
/* Upcalls from transports: a message has arrived, a peer is lost, a post was rejected. */
#ifndef STEPAF_CORE_DELIVER_H
#define STEPAF_CORE_DELIVER_H

#include "transport/transport.h"

struct stepaf_ctx;

void stepaf_core_deliver(struct stepaf_upcalls *up, struct stepaf_link *link,
                         const struct stepaf_msg *msg);
void stepaf_core_lost(struct stepaf_upcalls *up, struct stepaf_link *link, const char *reason);
/* Set whether messages of operations and plans are accepted: those of the context's epoch, or none.
 * Call this after the epoch has changed. */
void stepaf_core_hear(struct stepaf_ctx *ctx, bool hears);
void stepaf_core_refused(struct stepaf_upcalls *up, struct stepaf_post *post);

#endif
