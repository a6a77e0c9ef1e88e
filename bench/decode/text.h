/* SPDX-License-Identifier: Apache-2.0 */
/* The first sequence's text, shown while it is generated. */
#ifndef DECODE_TEXT_H
#define DECODE_TEXT_H

#include <stdio.h>

#include "sequence.h"
#include "tokenizer.h"

struct text_stream {
    FILE *file;
    const struct tokenizer *tokenizer; /* NULL: ids are shown as numbers */
    int sequence;                      /* which sequence is shown */
};

/* Show one token. Control characters, which could corrupt a terminal, show as \xNN. */
void text_put(const struct text_stream *stream, int id);

/* Show the whole prompt. */
void text_put_prompt(const struct text_stream *stream, const struct prompt *prompt);

/* For struct sampling's on_token; arg is a struct text_stream. */
void text_on_token(const struct sequence *sequence, int id, void *arg);

#endif
