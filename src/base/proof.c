/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proof.h"

#include <sodium.h>
#include <string.h>
#include <sys/random.h>
#include <sys/types.h>

_Static_assert((int)STEPAF_PROOF_KEY_BYTES == (int)crypto_generichash_KEYBYTES &&
                   (int)STEPAF_PROOF_KEY_BYTES == (int)crypto_aead_chacha20poly1305_ietf_KEYBYTES &&
                   (int)STEPAF_PROOF_MARK_BYTES == (int)crypto_aead_chacha20poly1305_ietf_ABYTES &&
                   (int)STEPAF_PROOF_BYTES == (int)crypto_generichash_BYTES,
               "lengths that the hash is meant for");

bool stepaf_proof_ready(void)
{
    return sodium_init() >= 0;
}

/* The hash fails only for unsupported lengths, and these are constants. */
void stepaf_proof_key(const void *secret, size_t bytes, uint8_t *key_p)
{
    (void)crypto_generichash(key_p, STEPAF_PROOF_KEY_BYTES, secret, bytes, NULL, 0);
}

void stepaf_proof_make(const uint8_t *key, const void *claim, size_t bytes, uint8_t *proof_p)
{
    (void)crypto_generichash(proof_p, STEPAF_PROOF_BYTES, claim, bytes, key,
                             STEPAF_PROOF_KEY_BYTES);
}

bool stepaf_proof_is_right(const uint8_t *key, const void *claim, size_t bytes,
                           const uint8_t *proof)
{
    uint8_t right[STEPAF_PROOF_BYTES];

    stepaf_proof_make(key, claim, bytes, right);
    return !sodium_memcmp(right, proof, sizeof(right));
}

static void make_nonce(uint64_t number,
                       uint8_t nonce_p[crypto_aead_chacha20poly1305_ietf_NPUBBYTES])
{
    memset(nonce_p, 0, crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
    memcpy(nonce_p, &number, sizeof(number));
}

void stepaf_proof_seal(const uint8_t *key, uint64_t number, const void *head, size_t head_bytes,
                       void *text, size_t bytes, uint8_t *mark_p)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];

    make_nonce(number, nonce);
    (void)crypto_aead_chacha20poly1305_ietf_encrypt_detached(text, mark_p, NULL, text, bytes, head,
                                                             head_bytes, NULL, nonce, key);
}

bool stepaf_proof_unseal(const uint8_t *key, uint64_t number, const void *head, size_t head_bytes,
                         void *text, size_t bytes, const uint8_t *mark)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];

    make_nonce(number, nonce);
    return !crypto_aead_chacha20poly1305_ietf_decrypt_detached(text, NULL, text, bytes, mark, head,
                                                               head_bytes, nonce, key);
}

void stepaf_proof_forget(void *secret, size_t bytes)
{
    sodium_memzero(secret, bytes);
}

bool stepaf_proof_draw(void *number_p, size_t bytes)
{
    return getrandom(number_p, bytes, 0) == (ssize_t)bytes;
}
