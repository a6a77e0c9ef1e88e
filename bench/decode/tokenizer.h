/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level tokenizers without merges: one id for each byte, and some for special texts. Other
 * kinds are recognized and rejected; their prompts must be given as ids. */
#ifndef DECODE_TOKENIZER_H
#define DECODE_TOKENIZER_H

#include <stddef.h>

#include "json.h"

struct tokenizer;

/* Read @a dir/tokenizer.json, whose ids must be below @a vocab. If the tokenizer is of another
 * kind or missing, *tokenizer_p is NULL and *why_not, a text for free(), says why; a file that
 * contradicts itself is an error. */
int tokenizer_load(const char *dir, int vocab, struct tokenizer **tokenizer_p, char **why_not,
                   struct reason *reason);

/* The same from parsed JSON. Pure. */
int tokenizer_parse(const json_t *root, const char *what, int vocab, struct tokenizer **tokenizer_p,
                    char **why_not, struct reason *reason);

void tokenizer_free(struct tokenizer *tokenizer);

/* Get the ids of @a text: *ids_p for free(). */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, int **ids_p,
                     size_t *count_p, struct reason *reason);

/* Get the bytes of @a id, which belong to the tokenizer. 0 bytes for an id without text. */
size_t tokenizer_decode(const struct tokenizer *tokenizer, int id, const char **text_p);

#endif
