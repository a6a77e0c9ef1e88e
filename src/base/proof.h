/* SPDX-License-Identifier: Apache-2.0 */
/* How one end of a connection proves to the other that it knows a secret, which never goes over the
 * wire: by a keyed hash of its claim. A claim with numbers that both ends have drawn for this
 * connection has a proof that is useless elsewhere. Also how both ends then encrypt what they send,
 * so that nobody in between can read or change it. */
#ifndef STEPAF_BASE_PROOF_H
#define STEPAF_BASE_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STEPAF_PROOF_BYTES = 32, STEPAF_PROOF_KEY_BYTES = 32, STEPAF_PROOF_MARK_BYTES = 16 };

/* Return whether the library that makes proofs can be used. */
bool stepaf_proof_ready(void);

/* Derive the key from a secret of any length. */
void stepaf_proof_key(const void *secret, size_t bytes, uint8_t *key_p);

void stepaf_proof_make(const uint8_t *key, const void *claim, size_t bytes, uint8_t *proof_p);
/* Return whether @a proof is right. The time taken does not reveal how much of it was. */
bool stepaf_proof_is_right(const uint8_t *key, const void *claim, size_t bytes,
                           const uint8_t *proof);

/* Encrypt @a bytes bytes in place, and make an authentication mark of them and of @a head, which
 * stays as it is. No two messages may have the same key and @a number. */
void stepaf_proof_seal(const uint8_t *key, uint64_t number, const void *head, size_t head_bytes,
                       void *text, size_t bytes, uint8_t *mark_p);
/* The same seal, made piece by piece. Aligned as malloc does. */
struct stepaf_proof_pieces {
    uint8_t state[256] __attribute__((aligned(16))); /* of the mark */
    uint8_t key[STEPAF_PROOF_KEY_BYTES];
    uint64_t number, head_bytes, bytes;
};

/* The sizes of all pieces but the last are multiples of this. */
enum { STEPAF_PROOF_PIECE_UNIT = 64 };

void stepaf_proof_pieces_begin(struct stepaf_proof_pieces *pieces_p, const uint8_t *key,
                               uint64_t number, const void *head, size_t head_bytes);
/* Encrypt the next piece in place. */
void stepaf_proof_pieces_next(struct stepaf_proof_pieces *pieces, void *text, size_t bytes);
/* Write the mark; what was secret in @a pieces is overwritten. */
void stepaf_proof_pieces_end(struct stepaf_proof_pieces *pieces, uint8_t *mark_p);
/* Decrypt the bytes in place. Returns false, and the bytes are useless, if this is not what was
 * sealed. */
bool stepaf_proof_unseal(const uint8_t *key, uint64_t number, const void *head, size_t head_bytes,
                         void *text, size_t bytes, const uint8_t *mark);

/* Overwrite secrets that must not stay in memory. */
void stepaf_proof_forget(void *secret, size_t bytes);

/* Draw an unpredictable number. Returns false if the system provides none. */
bool stepaf_proof_draw(void *number_p, size_t bytes);

#endif
