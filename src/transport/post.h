/* SPDX-License-Identifier: Apache-2.0 */
/* The unit of work for a transport: some writes, and the message after them. */
#ifndef STEPAF_TRANSPORT_POST_H
#define STEPAF_TRANSPORT_POST_H

#include "base/list.h"
#include "transport/mem.h"
#include "wire/msg.h"

/* One write. The core has checked the bounds on both sides. */
struct stepaf_xfer {
    const void *src;
    const struct stepaf_mem *src_mem; /* contains src; NULL if bytes is 0 */
    const struct stepaf_rmem *dst;
    uint64_t dst_offset;
    uint32_t bytes;
};

enum stepaf_post_state {
    STEPAF_POST_IDLE,   /* never posted */
    STEPAF_POST_QUEUED, /* the transport has no space: the core will offer it again */
    STEPAF_POST_POSTED, /* with the transport, sources in use */
    STEPAF_POST_SENT    /* sources may be reused */
};

struct stepaf_link;

/* Writes and the message after them: all or nothing, in order among the posts of a link. The
 * receiver gets the message once all writes have arrived. A post without writes is SENT or QUEUED
 * when the transport returns, never POSTED. The peer's answer may arrive before the transport has
 * learned that its POSTED post is complete: then the core has the transport retire the post. */
struct stepaf_post {
    struct stepaf_link *link;
    struct stepaf_list node; /* the core's queue */
    struct stepaf_xfer *xfer;
    uint32_t at_offset; /* the transport's cursor while QUEUED: 0 at first */
    uint8_t at;
    uint8_t n_xfer;
    uint8_t state; /* stepaf_post_state; set by the transport */
    bool owned;    /* on the heap: the core frees it when SENT */
    bool is_short; /* imm is the result of stepaf_msg_to_imm for the message */
    bool
        is_gated; /* the core's: it waits in the queue for its sources, and template says for what */
    uint32_t imm;
    void *template; /* of the link's transport, for exactly these writes; is_short is set; else
                     * NULL */
    struct stepaf_msg msg;
};

#endif
