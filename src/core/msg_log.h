/* SPDX-License-Identifier: Apache-2.0 */
/* STEPAF_LOG_LEVEL=trace: each message between ranks has a line, when it is with the transport and
 * when it has come. Where the level is another one at stepaf_init, transports and the core call
 * each other as ever, and it costs nothing. */
#ifndef STEPAF_CORE_MSG_LOG_H
#define STEPAF_CORE_MSG_LOG_H

#include "core/ctx.h"

/* Have what comes logged, if the setting says so. */
void stepaf_msg_log_begin(struct stepaf_ctx *ctx);
/* Have what is sent logged, if the setting says so: @a ops are the context's of a transport of the
 * registry, complete. */
void stepaf_msg_log_wrap(const struct stepaf_ctx *ctx, struct stepaf_transport_ops *ops);

#endif
