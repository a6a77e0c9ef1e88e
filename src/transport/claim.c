/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/claim.h"

#include <errno.h>
#include <string.h>

_Static_assert(sizeof(struct stepaf_claim) == 48, "no holes in what is hashed");

/* The key consists of both secrets. */
union key {
    uint64_t words[2 * STEPAF_CLAIM_SECRET_WORDS];
    uint8_t bytes[STEPAF_PROOF_KEY_BYTES];
};

_Static_assert(sizeof(union key) == STEPAF_PROOF_KEY_BYTES, "as long as a key has to be");

static union key key_of(const uint64_t *opener, const uint64_t *listener)
{
    union key key;

    memcpy(key.words, opener, sizeof(key) / 2);
    memcpy(key.words + STEPAF_CLAIM_SECRET_WORDS, listener, sizeof(key) / 2);
    return key;
}

int stepaf_claim_draw(uint64_t *nonce_p)
{
    errno = EAGAIN; /* if fewer bytes than requested are returned */
    return stepaf_proof_draw(nonce_p, STEPAF_CLAIM_NONCE_WORDS * sizeof(*nonce_p)) ? 0 : errno;
}

void stepaf_claim_prove(const uint64_t *opener, const uint64_t *listener,
                        const struct stepaf_claim *claim, uint8_t *proof_p)
{
    union key key = key_of(opener, listener);

    stepaf_proof_make(key.bytes, claim, sizeof(*claim), proof_p);
    stepaf_proof_forget(&key, sizeof(key));
}

bool stepaf_claim_is_proven(const uint64_t *opener, const uint64_t *listener,
                            const struct stepaf_claim *claim, const uint8_t *proof)
{
    union key key = key_of(opener, listener);
    bool is_right = stepaf_proof_is_right(key.bytes, claim, sizeof(*claim), proof);

    stepaf_proof_forget(&key, sizeof(key));
    return is_right;
}
