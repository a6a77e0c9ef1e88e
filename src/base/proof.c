/* SPDX-License-Identifier: Apache-2.0 */
#include "base/proof.h"

#include <endian.h>
#include <sodium.h>
#include <string.h>
#include <sys/random.h>
#include <sys/types.h>

_Static_assert((int)STEPAF_PROOF_KEY_BYTES == (int)crypto_generichash_KEYBYTES &&
                   (int)STEPAF_PROOF_KEY_BYTES == (int)crypto_aead_chacha20poly1305_ietf_KEYBYTES &&
                   (int)STEPAF_PROOF_MARK_BYTES == (int)crypto_aead_chacha20poly1305_ietf_ABYTES &&
                   sizeof(crypto_onetimeauth_poly1305_state) <=
                       sizeof(((struct stepaf_proof_pieces *)NULL)->state) &&
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

/* ---- ChaCha20-Poly1305 of RFC 8439 in pieces, since libsodium offers it only as a whole ---- */

static crypto_onetimeauth_poly1305_state *mark_state(struct stepaf_proof_pieces *pieces)
{
    return (crypto_onetimeauth_poly1305_state *)(void *)pieces->state;
}

/* The mark counts what has been hashed in units of 16 bytes. */
static void pad_mark(struct stepaf_proof_pieces *pieces, uint64_t bytes)
{
    static const uint8_t zeros[16];

    (void)crypto_onetimeauth_poly1305_update(mark_state(pieces), zeros, (16 - bytes % 16) % 16);
}

void stepaf_proof_pieces_begin(struct stepaf_proof_pieces *pieces_p, const uint8_t *key,
                               uint64_t number, const void *head, size_t head_bytes)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES], first[STEPAF_PROOF_PIECE_UNIT];

    *pieces_p = (struct stepaf_proof_pieces){.number = number, .head_bytes = head_bytes};
    memcpy(pieces_p->key, key, sizeof(pieces_p->key));
    make_nonce(number, nonce);
    (void)crypto_stream_chacha20_ietf(first, sizeof(first), nonce, key);
    (void)crypto_onetimeauth_poly1305_init(mark_state(pieces_p), first);
    sodium_memzero(first, sizeof(first));
    (void)crypto_onetimeauth_poly1305_update(mark_state(pieces_p), head, head_bytes);
    pad_mark(pieces_p, head_bytes);
}

void stepaf_proof_pieces_next(struct stepaf_proof_pieces *pieces, void *text, size_t bytes)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    uint32_t block = 1 + (uint32_t)(pieces->bytes / STEPAF_PROOF_PIECE_UNIT);

    make_nonce(pieces->number, nonce);
    (void)crypto_stream_chacha20_ietf_xor_ic(text, text, bytes, nonce, block, pieces->key);
    (void)crypto_onetimeauth_poly1305_update(mark_state(pieces), text, bytes);
    pieces->bytes += bytes;
}

void stepaf_proof_pieces_end(struct stepaf_proof_pieces *pieces, uint8_t *mark_p)
{
    uint64_t lengths[2] = {htole64(pieces->head_bytes), htole64(pieces->bytes)};

    pad_mark(pieces, pieces->bytes);
    (void)crypto_onetimeauth_poly1305_update(mark_state(pieces), (const uint8_t *)lengths,
                                             sizeof(lengths));
    (void)crypto_onetimeauth_poly1305_final(mark_state(pieces), mark_p);
    sodium_memzero(pieces, sizeof(*pieces));
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
