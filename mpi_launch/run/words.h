/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of words: argument vectors and assignments to the environment. */
#ifndef RUN_WORDS_H
#define RUN_WORDS_H

#include <stddef.h>

/* Empty if zero-initialized. word[n] is NULL once a word has been added. */
struct run_words {
    char **word;
    int n;
    int capacity;
};

/* Append a copy. If memory runs out, the process exits with a message: there is nothing to undo
 * yet. */
void run_words_add(struct run_words *words, const char *word);
void run_words_addf(struct run_words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Append the blank-separated words of @a text. */
void run_words_split(struct run_words *words, const char *text);

void run_words_free(struct run_words *words);

/* Write @a word to @a stream so that a POSIX shell reads it as this one word. */
void run_quote(const char *word, void *stream);

/* The same for NAME=VALUE in front of a command: the '=' must stay unquoted. */
void run_quote_assignment(const char *assignment, void *stream);

/* Whether @a text[0..bytes) is a valid name of a shell's environment variable. */
int run_is_name(const char *text, size_t bytes);

/* Return the value of @a name in a NULL-terminated list of NAME=VALUE; NULL if it is absent. */
const char *run_env_get(char *const *environment, const char *name);

#endif
