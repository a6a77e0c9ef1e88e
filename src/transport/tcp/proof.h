/* SPDX-License-Identifier: Apache-2.0 */
/* How two ends of a connection show each other that they know both their secrets, which never go
 * over the wire: each message of a greeting ends with a keyed hash of what it says, of the numbers
 * that both ends have drawn for this connection, and of its kind. So none can be used again
 * elsewhere. */
#ifndef STEPAF_TRANSPORT_TCP_PROOF_H
#define STEPAF_TRANSPORT_TCP_PROOF_H

#include <stdbool.h>
#include <stdint.h>

enum { STEPAF_TCP_SECRET_WORDS = 2, STEPAF_TCP_NONCE_WORDS = 2, STEPAF_TCP_PROOF_BYTES = 32 };

/* What is proven, beside the secrets. */
struct stepaf_tcp_claim {
    uint64_t kind;                             /* the message's magic */
    uint32_t slot;                             /* as in the hello */
    uint32_t connection;                       /* likewise */
    uint64_t opener[STEPAF_TCP_NONCE_WORDS];   /* drawn by the side that opens */
    uint64_t listener[STEPAF_TCP_NONCE_WORDS]; /* and by the other; in a hello 0 */
};

/* @a opener and @a listener: the two sides' secrets. */
void stepaf_tcp_proof_make(const uint64_t *opener, const uint64_t *listener,
                           const struct stepaf_tcp_claim *claim, uint8_t *proof_p);
/* Whether @a proof is right; how long that takes tells nothing of how much of it was. */
bool stepaf_tcp_proof_is_right(const uint64_t *opener, const uint64_t *listener,
                               const struct stepaf_tcp_claim *claim, const uint8_t *proof);

#endif
