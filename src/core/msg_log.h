/* SPDX-License-Identifier: Apache-2.0 */
/* STEPAF_LOG_LEVEL=trace: each message between ranks has a line in the log, when it is with the
 * transport and when it has arrived. If the level is another one at stepaf_init, transports and the
 * core call each other directly, and this costs nothing. */
#ifndef STEPAF_CORE_MSG_LOG_H
#define STEPAF_CORE_MSG_LOG_H

#include "core/ctx.h"

/* Log arriving messages, if the setting says so. */
void stepaf_msg_log_begin(struct stepaf_ctx *ctx);
/* Log sent messages, if the setting says so. @a ops: the context's complete operations of a
 * transport of the registry. */
void stepaf_msg_log_wrap(const struct stepaf_ctx *ctx, struct stepaf_transport_ops *ops);

#endif
