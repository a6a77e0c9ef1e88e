/* SPDX-License-Identifier: Apache-2.0 */
/* Callers that ask for it are notified of ranks that are lost or out: by a file descriptor, and by
 * a callback. */
#ifndef STEPAF_CORE_NEWS_H
#define STEPAF_CORE_NEWS_H

struct stepaf_ctx;

/* Notify them. */
void stepaf_core_tell_news(struct stepaf_ctx *ctx);
/* Notify them if members know of more lost ranks than was reported. */
void stepaf_core_notice_lost(struct stepaf_ctx *ctx);

#endif
