/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of words: argument vectors and assignments to the environment. */
#ifndef RUN_WORDS_H
#define RUN_WORDS_H

#include <stddef.h>

/* Zero-initialized it is empty. word[n] is NULL once a word has been added. */
struct run_words {
    char **word;
    int n;
    int capacity;
};

/* Append a copy. Out of memory ends the process with a message: there is nothing to undo yet. */
void run_words_add(struct run_words *words, const char *word);
void run_words_addf(struct run_words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Append what stands between blanks in @a text. */
void run_words_split(struct run_words *words, const char *text);

void run_words_free(struct run_words *words);

/* Write @a word to @a stream so that a POSIX shell reads it as this one word. */
void run_quote(const char *word, void *stream);

/* The same for NAME=VALUE in front of a command: the '=' has to stay bare. */
void run_quote_assignment(const char *assignment, void *stream);

/* Whether @a text[0..bytes) is a name that an environment variable can have in a shell. */
int run_is_name(const char *text, size_t bytes);

/* The value of @a name in a list of NAME=VALUE that ends with NULL; NULL if it is not there. */
const char *run_env_get(char *const *environment, const char *name);

#endif
