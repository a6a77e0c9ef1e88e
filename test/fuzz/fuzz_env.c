/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: the input is an environment, one NAME=value (without STEPAF_) a line. Whatever it is,
 * it is taken or refused as a whole, and what is taken is within the table's bounds. */
#include <string.h>

#include "base/error.h"
#include "fuzz.h"
#include "settings/settings.h"

/* The value of @a name in the lines of @a arg, whose newlines are zeros by now. */
static const char *get(const char *name, void *arg)
{
    const char *lines = arg;
    const char *short_name = name + strlen("STEPAF_");
    size_t bytes = strlen(short_name);
    for (; *lines != '\x01'; lines += strlen(lines) + 1)
        if (strncmp(lines, short_name, bytes) == 0 && lines[bytes] == '=')
            return lines + bytes + 1;
    return NULL;
}

static const char *get_formatted(const char *name, void *arg)
{
    static char text[8192];
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        if (strcmp(stepaf_env_table[i].info.name, name) == 0) {
            stepaf_env_format(arg, i, text, sizeof text);
            return text;
        }
    }
    abort();
}

static void check_values(const struct stepaf_env *env)
{
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        const struct stepaf_env_row *row = &stepaf_env_table[i];
        const void *field = stepaf_env_field(env, row);
        size_t bytes;
        if (row->kind == STEPAF_ENV_KIND_INT) {
            int64_t number = *(const int64_t *)field;
            FUZZ_CHECK(number >= row->min && number <= row->max);
            FUZZ_CHECK(row->rule != STEPAF_ENV_RULE_POWER_OF_TWO || !(number & (number - 1)));
            FUZZ_CHECK(row->rule != STEPAF_ENV_RULE_MULTIPLE_OF_4096 || number % 4096 == 0);
        } else if (row->kind == STEPAF_ENV_KIND_ENUM) {
            FUZZ_CHECK(stepaf_env_word(row->info.syntax, *(const int *)field, &bytes));
        } else {
            FUZZ_CHECK(*(char *const *)field);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stepaf_env env = {.depth = -7};
    struct stepaf_env again;
    char *lines = malloc(bytes + 3);
    if (bytes)
        memcpy(lines, data, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (lines[i] == '\n' || lines[i] == '\x01')
            lines[i] = '\0';
    memcpy(lines + bytes, "\0\x01", 3);

    if (stepaf_env_load_from(&env, get, lines) == STEPAF_OK) {
        check_values(&env);
        FUZZ_CHECK(stepaf_env_load_from(&again, get_formatted, &env) == STEPAF_OK);
        FUZZ_CHECK(stepaf_env_digest(&again) == stepaf_env_digest(&env));
        stepaf_env_free(&again);
        stepaf_env_free(&env);
    } else {
        FUZZ_CHECK(env.depth == -7 && !env.split);
        FUZZ_CHECK(stepaf_last_error()->status == STEPAF_ERR_SETTING);
        FUZZ_CHECK(strncmp(stepaf_last_error()->text, "STEPAF_", 7) == 0);
        FUZZ_CHECK(!strpbrk(stepaf_last_error()->text, "\n\r"));
    }
    free(lines);
    return 0;
}
