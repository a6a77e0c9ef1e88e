/* SPDX-License-Identifier: Apache-2.0 */
#include "settings/settings.h"

#include <string.h>

#include "base/env_words.h"
#include "base/hash.h"

/* Text that a rule adds to a setting's syntax. */
#define ANY_VALUE_TEXT ""
#define POWER_OF_TWO_TEXT ", a power of two"
#define MULTIPLE_OF_4096_TEXT ", a multiple of 4096"

const struct stepaf_env_row stepaf_env_table[STEPAF_ENV_COUNT] = {
#define INT(NAME, field_, default_, min_, max_, rule_, unit_, must_agree_, help_) \
    [STEPAF_ENV_##NAME] = {                                                       \
        STEPAF_ENV_KIND_INT,                                                      \
        offsetof(struct stepaf_env, field_),                                      \
        min_,                                                                     \
        max_,                                                                     \
        STEPAF_ENV_RULE_##rule_,                                                  \
        STEPAF_ENV_FORM_ANY_TEXT,                                                 \
        {"STEPAF_" #NAME, #default_, #min_ ".." #max_ rule_##_TEXT, unit_, help_, must_agree_}},
#define ENUM(NAME, field_, default_, words_, must_agree_, help_) \
    [STEPAF_ENV_##NAME] = {                                      \
        STEPAF_ENV_KIND_ENUM,                                    \
        offsetof(struct stepaf_env, field_),                     \
        0,                                                       \
        0,                                                       \
        STEPAF_ENV_RULE_ANY_VALUE,                               \
        STEPAF_ENV_FORM_ANY_TEXT,                                \
        {"STEPAF_" #NAME, #default_, STEPAF_ENV_WORD_TEXT(words_), "", help_, must_agree_}},
#define STR(NAME, field_, default_, form_, syntax_, must_agree_, help_) \
    [STEPAF_ENV_##NAME] = {STEPAF_ENV_KIND_STR,                         \
                           offsetof(struct stepaf_env, field_),         \
                           0,                                           \
                           0,                                           \
                           STEPAF_ENV_RULE_ANY_VALUE,                   \
                           STEPAF_ENV_FORM_##form_,                     \
                           {"STEPAF_" #NAME, default_, syntax_, "", help_, must_agree_}},
#include "settings/all.def"
};

void stepaf_env_describe(int index, struct stepaf_env_info *info_p)
{
    *info_p = stepaf_env_table[index].info;
}

void stepaf_env_format(const struct stepaf_env *env, int index, char *text, size_t capacity)
{
    const struct stepaf_env_row *row = &stepaf_env_table[index];
    stepaf_env_row_format(row, stepaf_env_field(env, row), text, capacity);
}

/* Include the terminating zero, so that neighbours do not run together. */
static uint64_t digest_text(uint64_t digest, const char *text)
{
    return stepaf_hash(digest, text, strlen(text) + 1);
}

uint64_t stepaf_env_digest(const struct stepaf_env *env)
{
    uint64_t digest = STEPAF_HASH_START;
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        const struct stepaf_env_row *row = &stepaf_env_table[i];
        char number[32];
        const char *value = number;
        if (!row->info.must_agree)
            continue;
        if (row->kind == STEPAF_ENV_KIND_STR)
            value = *(char *const *)stepaf_env_field(env, row);
        else
            stepaf_env_format(env, i, number, sizeof number);
        digest = digest_text(digest_text(digest, row->info.name), value);
    }
    return digest ? digest : 1;
}
