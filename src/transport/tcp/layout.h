/* SPDX-License-Identifier: Apache-2.0 */
/* Assign the parts of a post to connections, as the bytes of wire.h. */
#ifndef STEPAF_TRANSPORT_TCP_LAYOUT_H
#define STEPAF_TRANSPORT_TCP_LAYOUT_H

#include <sys/uio.h>

#include "transport/tcp/tcp.h"

/* A post's share of one connection: the bytes to send, from its beginning. */
struct stepaf_tcp_share {
    struct iovec iov[STEPAF_TCP_IOVECS];
    uint32_t payloads; /* bit i: iov[i] is a payload; heads and messages must be copied */
    int n;
    uint64_t bytes;
    struct stepaf_tcp_head head;
    struct stepaf_tcp_descriptor descriptors[STEPAF_MAX_TENSORS];
    struct {
        struct stepaf_tcp_head head;
        struct stepaf_tcp_descriptor descriptor;
    } parts[STEPAF_MAX_TENSORS];
};

static inline void stepaf_tcp_share_add(struct stepaf_tcp_share *share, const void *data,
                                        size_t bytes)
{
    if (!bytes)
        return;
    share->iov[share->n++] = (struct iovec){(void *)(uintptr_t)data, bytes};
    share->bytes += bytes;
}

static inline void stepaf_tcp_share_clear(struct stepaf_tcp_share *share)
{
    share->n = 0;
    share->payloads = 0;
    share->bytes = 0;
}

/* Return whether the tensor is divided among the connections. */
static inline bool stepaf_tcp_is_striped(const struct stepaf_tcp *tcp,
                                         const struct stepaf_tcp_link *link,
                                         const struct stepaf_xfer *xfer)
{
    return __builtin_expect(tcp->n_connections > 1, 0) && !link->whole &&
           xfer->bytes >= (uint64_t)tcp->base.up->env->tcp_stripe_bytes;
}

/* Lay out head, descriptors and payloads of the frame, with the first pieces of striped tensors. */
void stepaf_tcp_lay_out_frame(const struct stepaf_tcp *tcp, const struct stepaf_tcp_link *link,
                              const struct stepaf_post *post, struct stepaf_tcp_share *share);
/* Lay out the pieces that go over another connection. */
void stepaf_tcp_lay_out_parts(const struct stepaf_tcp *tcp, const struct stepaf_tcp_link *link,
                              const struct stepaf_post *post, unsigned index,
                              struct stepaf_tcp_share *share);
/* Lay out the message and the padding of the frame, of which @a before bytes precede the message;
 * return their bytes. */
uint32_t stepaf_tcp_lay_out_message(const struct stepaf_msg *msg, uint64_t before, uint8_t *tail_p);

#endif
