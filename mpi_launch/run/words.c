/* SPDX-License-Identifier: Apache-2.0 */
#include "words.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

/* Characters that every shell leaves unchanged anywhere. */
static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                            "_-+=./:,@%";

static void *need(void *memory)
{
    if (memory)
        return memory;
    fprintf(stderr, "stepaf-run: out of memory\n");
    exit(RUN_EXIT_USAGE);
}

/* Append @a word and take ownership of it. */
static void append(struct run_words *words, char *word)
{
    if (words->n + 2 > words->capacity) {
        words->capacity = words->capacity ? 2 * words->capacity : 16;
        words->word = need(realloc(words->word, (size_t)words->capacity * sizeof(*words->word)));
    }
    words->word[words->n++] = word;
    words->word[words->n] = NULL;
}

void run_words_add(struct run_words *words, const char *word)
{
    append(words, need(strdup(word)));
}

void run_words_addf(struct run_words *words, const char *format, ...)
{
    char *word;
    va_list args;

    va_start(args, format);
    int n = vasprintf(&word, format, args);
    va_end(args);
    append(words, need(n < 0 ? NULL : word));
}

void run_words_split(struct run_words *words, const char *text)
{
    static const char blanks[] = " \t\n";

    for (text += strspn(text, blanks); *text; text += strspn(text, blanks)) {
        size_t bytes = strcspn(text, blanks);
        run_words_addf(words, "%.*s", (int)bytes, text);
        text += bytes;
    }
}

void run_words_free(struct run_words *words)
{
    for (int i = 0; i < words->n; i++)
        free(words->word[i]);
    free(words->word);
    *words = (struct run_words){0};
}

void run_quote(const char *word, void *stream)
{
    if (*word && word[strspn(word, plain)] == '\0') {
        fputs(word, stream);
        return;
    }
    fputc('\'', stream);
    for (; *word; word++) {
        if (*word == '\'')
            fputs("'\\''", stream);
        else
            fputc(*word, stream);
    }
    fputc('\'', stream);
}

void run_quote_assignment(const char *assignment, void *stream)
{
    const char *value = strchr(assignment, '=') + 1;

    fwrite(assignment, 1, (size_t)(value - assignment), stream);
    if (*value)
        run_quote(value, stream);
}

int run_is_name(const char *text, size_t bytes)
{
    /* Letters, the underscore, and, except in front, digits. */
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        int is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!is_letter && (i == 0 || c < '0' || c > '9'))
            return 0;
    }
    return bytes > 0;
}

const char *run_env_get(char *const *environment, const char *name)
{
    size_t bytes = strlen(name);

    for (; *environment; environment++)
        if (strncmp(*environment, name, bytes) == 0 && (*environment)[bytes] == '=')
            return *environment + bytes + 1;
    return NULL;
}
