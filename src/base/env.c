/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum {
    VALUE_MAX = PATH_MAX, /* longest accepted text */
    SHOWN_MAX = 64        /* of a bad value in its error sentence */
};

static const char *shown_value(const struct stepaf_env_row *row, const char *value)
{
    return row->form == STEPAF_ENV_FORM_SECRET && *value ? "(not shown)" : value;
}

static stepaf_status_t bad_value(const struct stepaf_env_row *row, const char *value,
                                 const char *reason)
{
    value = shown_value(row, value);
    return stepaf_error_set(STEPAF_ERR_SETTING, STEPAF_PHASE_INIT, "%s=%.*s%s: %s; it takes %s%s%s",
                            row->info.name, SHOWN_MAX, value,
                            strlen(value) > SHOWN_MAX ? "..." : "", reason, row->info.syntax,
                            *row->info.unit ? " " : "", row->info.unit);
}

static int follows_rule(int64_t number, enum stepaf_env_rule rule)
{
    switch (rule) {
    case STEPAF_ENV_RULE_POWER_OF_TWO:
        return number > 0 && (number & (number - 1)) == 0;
    case STEPAF_ENV_RULE_MULTIPLE_OF_4096:
        return number % 4096 == 0;
    case STEPAF_ENV_RULE_ANY_VALUE:
        break;
    }
    return 1;
}

/* Digits and nothing else: no space, no suffix, and no sign, as no setting can be negative. */
static stepaf_status_t parse_int(const struct stepaf_env_row *row, const char *value,
                                 int64_t *field)
{
    int64_t number = 0;
    if (!*value)
        return bad_value(row, value, "empty");
    for (const char *c = value; *c; c++) {
        if (*c < '0' || *c > '9')
            return bad_value(row, value, "not a whole number");
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, *c - '0', &number))
            return bad_value(row, value, "out of range");
    }
    if (number < row->min || number > row->max)
        return bad_value(row, value, "out of range");
    if (!follows_rule(number, row->rule))
        return bad_value(row, value, "in range but not allowed");
    *field = number;
    return STEPAF_OK;
}

const char *stepaf_env_word(const char *words, int index, size_t *bytes_p)
{
    for (; index > 0; index--) {
        words = strchr(words, '|');
        if (!words)
            return NULL;
        words++;
    }
    *bytes_p = strcspn(words, "|");
    return words;
}

static stepaf_status_t parse_enum(const struct stepaf_env_row *row, const char *value, int *field)
{
    const char *word;
    size_t bytes;
    for (int i = 0; (word = stepaf_env_word(row->info.syntax, i, &bytes)); i++) {
        if (strlen(value) == bytes && memcmp(word, value, bytes) == 0) {
            *field = i;
            return STEPAF_OK;
        }
    }
    return bad_value(row, value, "not one of its words");
}

static stepaf_status_t parse_str(const struct stepaf_env_row *row, const char *value, char **field)
{
    if (strnlen(value, VALUE_MAX) == VALUE_MAX)
        return bad_value(row, value, "too long");
    const char *trouble = stepaf_env_text_trouble(row->form, value);
    if (trouble)
        return bad_value(row, value, trouble);
    char *copy = strdup(value);
    if (!copy)
        return stepaf_error_set(STEPAF_ERR_NO_MEMORY, STEPAF_PHASE_INIT, "no memory for %s",
                                row->info.name);
    free(*field);
    *field = copy;
    return STEPAF_OK;
}

stepaf_status_t stepaf_env_row_parse(const struct stepaf_env_row *row, const char *value,
                                     void *field)
{
    switch (row->kind) {
    case STEPAF_ENV_KIND_INT:
        return parse_int(row, value, field);
    case STEPAF_ENV_KIND_ENUM:
        return parse_enum(row, value, field);
    case STEPAF_ENV_KIND_STR:
        break;
    }
    return parse_str(row, value, field);
}

void stepaf_env_row_format(const struct stepaf_env_row *row, const void *field, char *text,
                           size_t capacity)
{
    size_t bytes = 0;

    switch (row->kind) {
    case STEPAF_ENV_KIND_INT:
        snprintf(text, capacity, "%" PRId64, *(const int64_t *)field);
        break;
    case STEPAF_ENV_KIND_ENUM: {
        const char *word = stepaf_env_word(row->info.syntax, *(const int *)field, &bytes);
        snprintf(text, capacity, "%.*s", (int)bytes, word ? word : "?");
        break;
    }
    case STEPAF_ENV_KIND_STR:
        snprintf(text, capacity, "%s", shown_value(row, *(char *const *)field));
        break;
    }
}
