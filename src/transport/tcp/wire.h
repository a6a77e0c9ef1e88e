/* SPDX-License-Identifier: Apache-2.0 */
/* The format of a connection. All numbers are little-endian.
 *
 * A connection begins with a greeting, in which both sides prove that they know the secrets that
 * both have announced through the bootstrap, without sending them (proof.h):
 *
 *   hello      from the opener: which connection it is, and a nonce of the opener
 *   challenge  from the listener: a nonce of the listener
 *   answer     proves the opener, over both nonces
 *   welcome    the connection is up on the listener's side
 *
 * A hello could be the copy of an earlier one, so it proves nothing: the listener sends the
 * challenge in any case. A connection with the same number that has not answered its own challenge
 * gives way, and is opened again.
 * Then frames follow:
 *
 *   FRAME  head, n_xfer descriptors, the payloads in their order, the message
 *   PART   head, one descriptor, its payload: a piece of a FRAME's tensor, on another connection
 *
 * A FRAME whose message is of type STEPAF_TCP_VOID has no message: the sender could not read all of
 * its payloads, and zeros replace the rest.
 *
 * A rank that cannot write its own memory where a payload must go ends the link. It sends a head of
 * kind UNWRITABLE, after the frame that it is sending.
 *
 * A receiver knows the place of every byte before it reads the byte. The message comes last, so
 * that it may change while its post still waits for space. A FRAME states how many PARTs every
 * other connection has transferred up to it; the message is delivered when as many have arrived. */
#ifndef STEPAF_TRANSPORT_TCP_WIRE_H
#define STEPAF_TRANSPORT_TCP_WIRE_H

#include <stdint.h>

#include "transport/claim.h"
#include "wire/msg.h"

enum {
    STEPAF_TCP_FRAME = 0xf1,
    STEPAF_TCP_PART = 0xf2,
    STEPAF_TCP_UNWRITABLE = 0xf3 /* only a head, the last of its connection */
};
enum { STEPAF_TCP_VOID = STEPAF_MSG_TRANSPORT };

static const uint64_t stepaf_tcp_hello_magic = 0x3248504643544453ull;
static const uint64_t stepaf_tcp_challenge_magic = 0x3243504643544453ull;
static const uint64_t stepaf_tcp_answer_magic = 0x3241504643544453ull;
static const uint64_t stepaf_tcp_welcome_magic = 0x3257504643544453ull;

struct stepaf_tcp_hello {
    uint64_t magic;
    uint32_t slot;       /* index of the sender among the listener's peers */
    uint32_t connection; /* number among those of that peer, from 0 */
    uint64_t nonce[STEPAF_CLAIM_NONCE_WORDS];
    uint8_t proof[STEPAF_PROOF_BYTES];
};

struct stepaf_tcp_challenge {
    uint64_t magic;
    uint64_t nonce[STEPAF_CLAIM_NONCE_WORDS];
    uint8_t proof[STEPAF_PROOF_BYTES];
};

/* Also the format of the welcome. */
struct stepaf_tcp_answer {
    uint64_t magic;
    uint8_t proof[STEPAF_PROOF_BYTES];
};

/* A frame ends at a multiple of 64 bytes. In a spaced frame, the descriptors and each payload do
 * too; padding bytes have no meaning. Large payloads thus begin where the kernel's copies are fast:
 * at places that are off by a head's 24 bytes, copies take two to three times as long. */
enum stepaf_tcp_layout { STEPAF_TCP_DENSE = 0, STEPAF_TCP_SPACED = 1 };

enum { STEPAF_TCP_ALIGN = 64 };

/* Return the bytes of padding after @a bytes up to the next such multiple. */
static inline uint32_t stepaf_tcp_space(uint64_t bytes)
{
    return (uint32_t)-bytes & (STEPAF_TCP_ALIGN - 1);
}

struct stepaf_tcp_head {
    uint8_t kind;
    uint8_t n_xfer;
    uint16_t layout; /* stepaf_tcp_layout */
    uint32_t
        parts; /* FRAME: PARTs on every other connection so far, including this frame's; wraps */
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

_Static_assert(sizeof(struct stepaf_tcp_hello) == 64 && sizeof(struct stepaf_tcp_challenge) == 56 &&
                   sizeof(struct stepaf_tcp_answer) == 40 && sizeof(struct stepaf_tcp_head) == 8 &&
                   sizeof(struct stepaf_tcp_descriptor) == 16 &&
                   sizeof(struct stepaf_tcp_tail) == 16,
               "no holes on the wire");

#endif
