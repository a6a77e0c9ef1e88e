/* SPDX-License-Identifier: Apache-2.0 */
/* The settings: read from the environment once per context, here and nowhere else. */
#ifndef STEPAF_SETTINGS_SETTINGS_H
#define STEPAF_SETTINGS_SETTINGS_H

#include <stdio.h>

#include <stepaf/types.h>

#include "base/env.h"
#include "base/env_words.h"

/* Index of each setting in the table. */
enum stepaf_env_index {
#define INT(NAME, ...) STEPAF_ENV_##NAME,
#define ENUM(NAME, ...) STEPAF_ENV_##NAME,
#define STR(NAME, ...) STEPAF_ENV_##NAME,
#include "settings/all.def"
    STEPAF_ENV_COUNT
};

/* Values in force. Strings are owned by the struct. */
struct stepaf_env {
#define INT(NAME, field, ...) int64_t field;
#define ENUM(NAME, field, ...) int field;
#define STR(NAME, field, ...) char *field;
#include "settings/all.def"
    uint8_t from_environment[STEPAF_ENV_COUNT];
};

/* Words of the ENUM settings: STEPAF_ENV_SHM_CMA_auto and so on, spelt as in the environment. A
 * default that is not one of the words does not compile. */
#define ENUM(NAME, field, default_, words, ...)                      \
    enum {                                                           \
        STEPAF_ENV_WORD_NAMES(STEPAF_ENV_##NAME##_, words),          \
        STEPAF_ENV_##NAME##_DEFAULT = STEPAF_ENV_##NAME##_##default_ \
    };
#include "settings/all.def"

extern const struct stepaf_env_row stepaf_env_table[STEPAF_ENV_COUNT];

/* Return the field of @a row in @a env: int64_t, int or char pointer by kind. */
static inline void *stepaf_env_field(const struct stepaf_env *env, const struct stepaf_env_row *row)
{
    return (char *)env + row->offset;
}

/* How the parser reads a variable: getenv, or a fake in tests. */
typedef const char *(*stepaf_env_get_t)(const char *name, void *arg);

/* Fill *env_p from the process's environment. For a bad value returns STEPAF_ERR_SETTING, with a
 * sentence that names variable, value and syntax; nothing stays allocated and *env_p is unchanged.
 * Configures the log by what it has read, then logs a warning for each unknown STEPAF_* variable,
 * once per process. */
stepaf_status_t stepaf_env_load(struct stepaf_env *env_p);

/* Find the next variable, from number @a from of the environment on, that begins like a setting and
 * is none: a misspelled name would otherwise go unnoticed. Returns the number to continue from; 0
 * if there is none. Long names are cut. */
enum { STEPAF_ENV_UNKNOWN_MAX = 65 };
int stepaf_env_next_unknown(int from, char name_p[STEPAF_ENV_UNKNOWN_MAX]);

/* Log a warning for each such variable, once per process. */
void stepaf_env_warn_unknown(void);

/* Load only the settings that choose the bootstrap; all others have their defaults. These others
 * are checked when the other ranks can be told. Warns about nothing, and does not configure the
 * log. */
stepaf_status_t stepaf_env_load_boot(struct stepaf_env *env_p);

/* Return STEPAF_INIT_TIMEOUT_US alone, whatever is wrong with other settings; its default if its
 * value is bad. Keeps the last failure. */
int64_t stepaf_env_init_timeout_us(void);

/* Load all settings from any source. Warns about nothing. */
stepaf_status_t stepaf_env_load_from(struct stepaf_env *env_p, stepaf_env_get_t get, void *arg);

void stepaf_env_free(struct stepaf_env *env);

/* Return the digest of the settings that must agree between ranks, for init's exchange: never 0. */
uint64_t stepaf_env_digest(const struct stepaf_env *env);

/* Write the value of setting @a index as text into @a text (for the exchange's error sentence, and
 * stepaf_info). Truncates. */
void stepaf_env_format(const struct stepaf_env *env, int index, char *text, size_t capacity);

/* Return what the table says of setting @a index. */
void stepaf_env_describe(int index, struct stepaf_env_info *info_p);

#endif
