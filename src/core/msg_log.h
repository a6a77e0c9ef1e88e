/* SPDX-License-Identifier: Apache-2.0 */
/* STEPAF_LOG_LEVEL=trace: logs each message between ranks, when it is handed to the transport and
 * when it has arrived. With another level at stepaf_init, transports and the core call each other
 * directly, and logging costs nothing. */
#ifndef STEPAF_CORE_MSG_LOG_H
#define STEPAF_CORE_MSG_LOG_H

#include "core/ctx.h"

/* Log received messages, if the setting says so. */
void stepaf_msg_log_begin(struct stepaf_ctx *ctx);
/* Log sent messages, if the setting says so. @a ops: the context's complete operations of a
 * transport in the registry. */
void stepaf_msg_log_wrap(const struct stepaf_ctx *ctx, struct stepaf_transport_ops *ops);

#endif
