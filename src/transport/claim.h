/* SPDX-License-Identifier: Apache-2.0 */
/* How two ends of a connection show each other that they know both their secrets, which the
 * bootstrap has brought and which never go over the wire: each message of a greeting ends with a
 * keyed hash of what it says, of the numbers that both ends have drawn for this connection, and of
 * its kind. So none can be used again elsewhere; but for the first one, which knows only the
 * opener's number. */
#ifndef STEPAF_TRANSPORT_CLAIM_H
#define STEPAF_TRANSPORT_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proof.h"

enum { STEPAF_CLAIM_SECRET_WORDS = 2, STEPAF_CLAIM_NONCE_WORDS = 2 };

/* What is proven, beside the secrets. */
struct stepaf_claim {
    uint64_t kind;                               /* the message's magic */
    uint32_t slot;                               /* of the side that opens, among the other's */
    uint32_t part;                               /* of several connections, this one */
    uint64_t opener[STEPAF_CLAIM_NONCE_WORDS];   /* drawn by the side that opens */
    uint64_t listener[STEPAF_CLAIM_NONCE_WORDS]; /* and by the other; in its first message 0 */
};

/* 0, or an errno: the system gives no number. */
int stepaf_claim_draw(uint64_t *nonce_p);
/* @a opener and @a listener: the two sides' secrets. */
void stepaf_claim_prove(const uint64_t *opener, const uint64_t *listener,
                        const struct stepaf_claim *claim, uint8_t *proof_p);
/* Whether @a proof is right; how long that takes tells nothing of how much of it was. */
bool stepaf_claim_is_proven(const uint64_t *opener, const uint64_t *listener,
                            const struct stepaf_claim *claim, const uint8_t *proof);

#endif
