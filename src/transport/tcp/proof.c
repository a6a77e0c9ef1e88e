/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/proof.h"

#include <string.h>

#include "base/proof.h"

_Static_assert(sizeof(struct stepaf_tcp_claim) == 48, "no holes in what is hashed");
_Static_assert((int)STEPAF_TCP_PROOF_BYTES == (int)STEPAF_PROOF_BYTES, "what goes over the wire");

/* Both secrets are the key. */
union key {
    uint64_t words[2 * STEPAF_TCP_SECRET_WORDS];
    uint8_t bytes[STEPAF_PROOF_KEY_BYTES];
};

_Static_assert(sizeof(union key) == STEPAF_PROOF_KEY_BYTES, "as long as a key has to be");

static union key key_of(const uint64_t *opener, const uint64_t *listener)
{
    union key key;

    memcpy(key.words, opener, sizeof(key) / 2);
    memcpy(key.words + STEPAF_TCP_SECRET_WORDS, listener, sizeof(key) / 2);
    return key;
}

void stepaf_tcp_proof_make(const uint64_t *opener, const uint64_t *listener,
                           const struct stepaf_tcp_claim *claim, uint8_t *proof_p)
{
    union key key = key_of(opener, listener);

    stepaf_proof_make(key.bytes, claim, sizeof(*claim), proof_p);
    stepaf_proof_forget(&key, sizeof(key));
}

bool stepaf_tcp_proof_is_right(const uint64_t *opener, const uint64_t *listener,
                               const struct stepaf_tcp_claim *claim, const uint8_t *proof)
{
    union key key = key_of(opener, listener);
    bool is_right = stepaf_proof_is_right(key.bytes, claim, sizeof(*claim), proof);

    stepaf_proof_forget(&key, sizeof(key));
    return is_right;
}
