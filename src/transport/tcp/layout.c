/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/layout.h"

#include <string.h>

/* Add a payload; zeros replace the payloads of a post that cannot be read. */
static void add_payload(const struct stepaf_tcp_link *link, struct stepaf_tcp_share *share,
                        const void *data, size_t bytes)
{
    share->payloads |= 1u << share->n;
    stepaf_tcp_share_add(
        share, __builtin_expect(link->zeros.base != NULL, 0) ? link->zeros.base : data, bytes);
}

/* Add padding up to the next offset where a payload, or another frame, may begin. */
static void add_space(struct stepaf_tcp_share *share)
{
    static const uint8_t space[STEPAF_TCP_ALIGN];

    stepaf_tcp_share_add(share, space, stepaf_tcp_space(share->bytes));
}

static bool is_spaced(const struct stepaf_post *post)
{
    for (unsigned i = 0; i < post->n_xfer; i++)
        if (post->xfer[i].bytes >= STEPAF_TCP_SPACED_BYTES)
            return true;
    return false;
}

void stepaf_tcp_lay_out_frame(const struct stepaf_tcp *tcp, const struct stepaf_tcp_link *link,
                              const struct stepaf_post *post, struct stepaf_tcp_share *share)
{
    bool spaced = is_spaced(post);

    share->head = (struct stepaf_tcp_head){.kind = STEPAF_TCP_FRAME,
                                           .n_xfer = post->n_xfer,
                                           .layout = spaced ? STEPAF_TCP_SPACED : STEPAF_TCP_DENSE,
                                           .parts = link->tx_parts};
    stepaf_tcp_share_add(share, &share->head, sizeof(share->head));
    stepaf_tcp_share_add(share, share->descriptors, post->n_xfer * sizeof(share->descriptors[0]));
    if (spaced)
        add_space(share);
    for (unsigned i = 0; i < post->n_xfer; i++) {
        const struct stepaf_xfer *xfer = &post->xfer[i];
        uint32_t bytes = xfer->bytes, at = 0;
        if (stepaf_tcp_is_striped(tcp, link, xfer))
            bytes = stepaf_tcp_piece(xfer->bytes, tcp->n_connections, 0, &at);
        share->descriptors[i] = (struct stepaf_tcp_descriptor){
            .region = xfer->bytes ? xfer->dst->id : 0, .bytes = bytes, .offset = xfer->dst_offset};
        add_payload(link, share, xfer->src, bytes);
        if (spaced)
            add_space(share);
    }
}

void stepaf_tcp_lay_out_parts(const struct stepaf_tcp *tcp, const struct stepaf_tcp_link *link,
                              const struct stepaf_post *post, unsigned index,
                              struct stepaf_tcp_share *share)
{
    for (unsigned i = 0; i < post->n_xfer; i++) {
        const struct stepaf_xfer *xfer = &post->xfer[i];
        uint32_t at;
        if (!stepaf_tcp_is_striped(tcp, link, xfer))
            continue;
        uint32_t bytes = stepaf_tcp_piece(xfer->bytes, tcp->n_connections, index, &at);
        share->parts[i].head = (struct stepaf_tcp_head){
            .kind = STEPAF_TCP_PART, .n_xfer = 1, .layout = STEPAF_TCP_SPACED};
        share->parts[i].descriptor = (struct stepaf_tcp_descriptor){
            .region = xfer->dst->id, .bytes = bytes, .offset = xfer->dst_offset + at};
        stepaf_tcp_share_add(share, &share->parts[i], sizeof(share->parts[i]));
        add_space(share);
        add_payload(link, share, (const uint8_t *)xfer->src + at, bytes);
        add_space(share);
    }
}

uint32_t stepaf_tcp_lay_out_message(const struct stepaf_msg *msg, uint64_t before, uint8_t *tail_p)
{
    struct stepaf_tcp_tail tail = {.seq = msg->seq, .n_words = msg->n_words};
    uint32_t bytes = (uint32_t)(sizeof(tail) + tail.n_words * sizeof(msg->word[0]));
    uint32_t space = stepaf_tcp_space(before + bytes);

    memcpy(&tail.head, msg, sizeof(tail.head));
    memcpy(tail_p, &tail, sizeof(tail));
    memcpy(tail_p + sizeof(tail), msg->word, tail.n_words * sizeof(msg->word[0]));
    memset(tail_p + bytes, 0, space);
    return bytes + space;
}
