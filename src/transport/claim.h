/* SPDX-License-Identifier: Apache-2.0 */
/* Mutual proof of the secrets of both ends of a connection. The bootstrap exchanges the secrets;
 * they never go over the wire. Each message of a greeting ends with a keyed hash of the message, of
 * the nonces that both ends have drawn for this connection, and of the message's kind. So no
 * message can be reused elsewhere, except the first one, which contains only the opener's nonce. */
#ifndef STEPAF_TRANSPORT_CLAIM_H
#define STEPAF_TRANSPORT_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proof.h"

enum { STEPAF_CLAIM_SECRET_WORDS = 2, STEPAF_CLAIM_NONCE_WORDS = 2 };

/* What is proven, in addition to the secrets. */
struct stepaf_claim {
    uint64_t kind;                               /* the message's magic */
    uint32_t slot;                               /* of the opener, among the other side's peers */
    uint32_t part;                               /* number of this connection, if there are
                                                  * several */
    uint64_t opener[STEPAF_CLAIM_NONCE_WORDS];   /* drawn by the side that opens */
    uint64_t listener[STEPAF_CLAIM_NONCE_WORDS]; /* drawn by the other side; 0 in the first
                                                  * message */
};

/* Return 0, or an errno if the system provides no random number. */
int stepaf_claim_draw(uint64_t *nonce_p);
/* Compute the proof of a claim; @a opener and @a listener: the secrets of the two sides. */
void stepaf_claim_prove(const uint64_t *opener, const uint64_t *listener,
                        const struct stepaf_claim *claim, uint8_t *proof_p);
/* Return whether @a proof is right, in a time that does not depend on how much of it is right. */
bool stepaf_claim_is_proven(const uint64_t *opener, const uint64_t *listener,
                            const struct stepaf_claim *claim, const uint8_t *proof);

#endif
