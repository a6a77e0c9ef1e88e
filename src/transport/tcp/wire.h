/* SPDX-License-Identifier: Apache-2.0 */
/* What goes over a connection; all numbers little-endian.
 *
 * First a greeting: the side that opens the connection sends a hello with the secret that the other
 * announced through the bootstrap, and gets a welcome with its own secret back. Then frames:
 *
 *   FRAME  head, n_xfer descriptors, the payloads in their order, the message
 *   PART   head, one descriptor, its payload: a piece of a FRAME's tensor, on another connection
 *
 * A receiver knows where every byte goes before it reads it. The message comes last, so that it may
 * change while its post still waits for room. A FRAME says how many PARTs every other connection
 * has carried up to it; the message is delivered when as many have landed. */
#ifndef STEPAF_TRANSPORT_TCP_WIRE_H
#define STEPAF_TRANSPORT_TCP_WIRE_H

#include <stdint.h>

enum { STEPAF_TCP_SECRET_WORDS = 2, STEPAF_TCP_FRAME = 0xf1, STEPAF_TCP_PART = 0xf2 };

static const uint64_t stepaf_tcp_hello_magic = 0x3148504643544453ull;
static const uint64_t stepaf_tcp_welcome_magic = 0x3157504643544453ull;

struct stepaf_tcp_hello {
    uint64_t magic;
    uint64_t secret[STEPAF_TCP_SECRET_WORDS]; /* the listener's */
    uint32_t slot;                            /* index of the sender among the listener's peers */
    uint32_t connection;                      /* of that peer, from 0 */
};

struct stepaf_tcp_welcome {
    uint64_t magic;
    uint64_t secret[STEPAF_TCP_SECRET_WORDS]; /* of the side that opened the connection */
};

struct stepaf_tcp_head {
    uint8_t kind;
    uint8_t n_xfer;
    uint16_t zero;
    uint32_t
        parts; /* FRAME: PARTs on every other connection so far, this one's among them; wraps */
};

struct stepaf_tcp_descriptor {
    uint32_t region;
    uint32_t bytes;
    uint64_t offset;
};

/* The message; n_words words follow. */
struct stepaf_tcp_tail {
    uint64_t head; /* of struct stepaf_msg */
    uint32_t seq;
    uint32_t n_words;
};

_Static_assert(sizeof(struct stepaf_tcp_hello) == 32 && sizeof(struct stepaf_tcp_welcome) == 24 &&
                   sizeof(struct stepaf_tcp_head) == 8 &&
                   sizeof(struct stepaf_tcp_descriptor) == 16 &&
                   sizeof(struct stepaf_tcp_tail) == 16,
               "no holes on the wire");

#endif
