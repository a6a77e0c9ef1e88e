/* SPDX-License-Identifier: Apache-2.0 */
/* Notification of callers that a rank is lost or out: by a file descriptor, and by a callback. */
#ifndef STEPAF_CORE_NEWS_H
#define STEPAF_CORE_NEWS_H

struct stepaf_ctx;

/* Notify the callers. */
void stepaf_core_tell_news(struct stepaf_ctx *ctx);
/* Notify the callers if members know of more lost ranks than was reported. */
void stepaf_core_notice_lost(struct stepaf_ctx *ctx);

#endif
