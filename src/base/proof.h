/* SPDX-License-Identifier: Apache-2.0 */
/* How one end of a connection shows the other that it knows a secret, which never goes over the
 * wire: by a keyed hash of what it claims. Where a claim has numbers that both ends have drawn for
 * this connection, its proof is of no use anywhere else. And how both talk then, so that nobody on
 * the way can read or change anything. */
#ifndef STEPAF_BASE_PROOF_H
#define STEPAF_BASE_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STEPAF_PROOF_BYTES = 32, STEPAF_PROOF_KEY_BYTES = 32, STEPAF_PROOF_MARK_BYTES = 16 };

/* Whether the library that makes proofs can be used. */
bool stepaf_proof_ready(void);

/* The key that a secret of any length stands for. */
void stepaf_proof_key(const void *secret, size_t bytes, uint8_t *key_p);

void stepaf_proof_make(const uint8_t *key, const void *claim, size_t bytes, uint8_t *proof_p);
/* Whether @a proof is right; how long that takes tells nothing of how much of it was. */
bool stepaf_proof_is_right(const uint8_t *key, const void *claim, size_t bytes,
                           const uint8_t *proof);

/* Encrypt @a bytes bytes in place, and make a mark of them and of @a head, which stays as it is. No
 * two messages may have the same key and @a number. */
void stepaf_proof_seal(const uint8_t *key, uint64_t number, const void *head, size_t head_bytes,
                       void *text, size_t bytes, uint8_t *mark_p);
/* Decrypt them in place; false, and they are of no use, if this is not what was sealed. */
bool stepaf_proof_unseal(const uint8_t *key, uint64_t number, const void *head, size_t head_bytes,
                         void *text, size_t bytes, const uint8_t *mark);

/* Overwrite what nobody is to find in memory. */
void stepaf_proof_forget(void *secret, size_t bytes);

/* Draw a number that nobody can guess; false if the system gives none. */
bool stepaf_proof_draw(void *number_p, size_t bytes);

#endif
