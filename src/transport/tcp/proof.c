/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/proof.h"

#include <sodium.h>
#include <string.h>

_Static_assert(sizeof(struct stepaf_tcp_claim) == 48, "no holes in what is hashed");
_Static_assert(2 * STEPAF_TCP_SECRET_WORDS * sizeof(uint64_t) == crypto_generichash_KEYBYTES,
               "both secrets are the key");

bool stepaf_tcp_proof_ready(void)
{
    return sodium_init() >= 0;
}

void stepaf_tcp_proof_make(const uint64_t *opener, const uint64_t *listener,
                           const struct stepaf_tcp_claim *claim, uint8_t *proof_p)
{
    uint64_t key[2 * STEPAF_TCP_SECRET_WORDS];

    memcpy(key, opener, sizeof(key) / 2);
    memcpy(key + STEPAF_TCP_SECRET_WORDS, listener, sizeof(key) / 2);
    /* Fails for lengths that it does not have, and these are constants. */
    (void)crypto_generichash(proof_p, STEPAF_TCP_PROOF_BYTES, (const unsigned char *)claim,
                             sizeof(*claim), (const unsigned char *)key, sizeof(key));
    sodium_memzero(key, sizeof(key));
}

bool stepaf_tcp_proof_is_right(const uint64_t *opener, const uint64_t *listener,
                               const struct stepaf_tcp_claim *claim, const uint8_t *proof)
{
    uint8_t right[STEPAF_TCP_PROOF_BYTES];

    stepaf_tcp_proof_make(opener, listener, claim, right);
    return !sodium_memcmp(right, proof, sizeof(right));
}
