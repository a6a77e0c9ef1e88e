/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

void text_put(const struct text_stream *stream, int id)
{
    const char *text = NULL;
    if (!stream->tokenizer) {
        fprintf(stream->file, "%d ", id);
        return;
    }
    size_t bytes = tokenizer_decode(stream->tokenizer, id, &text);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f)
            fprintf(stream->file, "\\x%02x", byte);
        else
            fputc(byte, stream->file);
    }
}

void text_put_prompt(const struct text_stream *stream, const struct prompt *prompt)
{
    for (int i = 0; i < prompt->count; i++)
        text_put(stream, prompt->ids[i]);
    fflush(stream->file);
}

void text_on_token(const struct sequence *sequence, int id, void *arg)
{
    const struct text_stream *stream = arg;
    if (sequence->index != stream->sequence)
        return;
    text_put(stream, id);
    if (sequence->finished)
        fputc('\n', stream->file);
    fflush(stream->file);
}
