/* SPDX-License-Identifier: Apache-2.0 */
/* What a setting is, and how its value is parsed and shown. The settings themselves are in
 * settings/. */
#ifndef STEPAF_BASE_ENV_H
#define STEPAF_BASE_ENV_H

#include <stepaf/types.h>

#include "base/env_text.h"

enum stepaf_env_kind { STEPAF_ENV_KIND_INT, STEPAF_ENV_KIND_ENUM, STEPAF_ENV_KIND_STR };

/* What an integer must be beyond its bounds. */
enum stepaf_env_rule {
    STEPAF_ENV_RULE_ANY_VALUE,
    STEPAF_ENV_RULE_POWER_OF_TWO,
    STEPAF_ENV_RULE_MULTIPLE_OF_4096
};

/* What users are told about a setting. */
struct stepaf_env_info {
    const char *name;     /* with STEPAF_ */
    const char *fallback; /* default as text */
    const char *syntax;   /* "1..32", "a|b", free text */
    const char *unit;     /* "" if none */
    const char *help;
    int must_agree;
};

struct stepaf_env_row {
    enum stepaf_env_kind kind;
    size_t offset; /* of the field in the struct of values */
    int64_t min;   /* min, max and rule: INT only */
    int64_t max;
    enum stepaf_env_rule rule;
    enum stepaf_env_form form; /* STR only */
    struct stepaf_env_info info;
};

/* Set *field, an int64_t, an int or an allocated char * by @a row's kind, to @a value; a former
 * string is freed. For a bad value returns STEPAF_ERR_SETTING, with a sentence that names variable,
 * value and syntax, and leaves *field unchanged. */
stepaf_status_t stepaf_env_row_parse(const struct stepaf_env_row *row, const char *value,
                                     void *field);

/* Write the value of @a field as text into @a text. Truncates. */
void stepaf_env_row_format(const struct stepaf_env_row *row, const void *field, char *text,
                           size_t capacity);

/* Return the word at @a index of a list such as "a|b|c", with its length in *bytes_p; NULL past the
 * end. */
const char *stepaf_env_word(const char *words, int index, size_t *bytes_p);

#endif
