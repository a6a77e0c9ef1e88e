/* SPDX-License-Identifier: Apache-2.0 */
/* The settings' table as data: what env_def.h says, row by row. For env*.c only. */
#ifndef STEPAF_BASE_ENV_TABLE_H
#define STEPAF_BASE_ENV_TABLE_H

#include "base/env.h"
#include "base/env_text.h"

enum stepaf_env_kind { STEPAF_ENV_KIND_INT, STEPAF_ENV_KIND_ENUM, STEPAF_ENV_KIND_STR };

/* What an integer has to be beyond its bounds. */
enum stepaf_env_rule {
    STEPAF_ENV_RULE_ANY_VALUE,
    STEPAF_ENV_RULE_POWER_OF_TWO,
    STEPAF_ENV_RULE_MULTIPLE_OF_4096
};

struct stepaf_env_row {
    enum stepaf_env_kind kind;
    size_t offset; /* of the field in struct stepaf_env */
    int64_t min;   /* min, max and rule: INT only */
    int64_t max;
    enum stepaf_env_rule rule;
    enum stepaf_env_form form; /* STR only */
    struct stepaf_env_info info;
};

extern const struct stepaf_env_row stepaf_env_table[STEPAF_ENV_COUNT];

/* The field of @a row in @a env: int64_t, int or char pointer by kind. */
static inline void *stepaf_env_field(const struct stepaf_env *env, const struct stepaf_env_row *row)
{
    return (char *)env + row->offset;
}

/* The word at @a index of a list such as "a|b|c"; its length goes to *bytes_p. NULL past the
 * end. */
const char *stepaf_env_word(const char *words, int index, size_t *bytes_p);

#endif
