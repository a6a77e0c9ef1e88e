/* SPDX-License-Identifier: Apache-2.0 */
/* That a rank is lost, or out, is told to callers who want to know: by a descriptor, and by a
 * callback. */
#ifndef STEPAF_CORE_NEWS_H
#define STEPAF_CORE_NEWS_H

struct stepaf_ctx;

/* Tell them. */
void stepaf_core_tell_news(struct stepaf_ctx *ctx);
/* Tell them if members know of more lost ranks than was told. */
void stepaf_core_notice_lost(struct stepaf_ctx *ctx);

#endif
