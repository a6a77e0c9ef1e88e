/* SPDX-License-Identifier: Apache-2.0 */
/* Reading settings: the only file that looks at the environment. */
#define _GNU_SOURCE 1 /* environ */

#include "base/env.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env_table.h"
#include "base/error.h"
#include "base/log.h"

static const char prefix[] = "STEPAF_";

enum {
    VALUE_MAX = PATH_MAX, /* longest text that is taken */
    SHOWN_MAX = 64        /* of a bad value in the sentence about it */
};

static stepaf_status_t bad_value(const struct stepaf_env_row *row, const char *value,
                                 const char *reason)
{
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

/* Digits and nothing else: no sign, as no setting can be negative, no space, no suffix. */
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
    return bad_value(row, value, "none of its words");
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

static stepaf_status_t parse(struct stepaf_env *env, const struct stepaf_env_row *row,
                             const char *value)
{
    void *field = stepaf_env_field(env, row);
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

stepaf_status_t stepaf_env_load_from(struct stepaf_env *env_p, stepaf_env_get_t get, void *arg)
{
    struct stepaf_env env = {0};
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        const struct stepaf_env_row *row = &stepaf_env_table[i];
        const char *value = get(row->info.name, arg);
        env.from_environment[i] = value != NULL;
        stepaf_status_t status = parse(&env, row, value ? value : row->info.fallback);
        if (status != STEPAF_OK) {
            stepaf_env_free(&env);
            return status;
        }
    }
    *env_p = env;
    return STEPAF_OK;
}

void stepaf_env_free(struct stepaf_env *env)
{
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        const struct stepaf_env_row *row = &stepaf_env_table[i];
        if (row->kind != STEPAF_ENV_KIND_STR)
            continue;
        char **field = stepaf_env_field(env, row);
        free(*field);
        *field = NULL;
    }
}

static int is_known(const char *variable, size_t name_bytes)
{
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        const char *name = stepaf_env_table[i].info.name;
        if (strlen(name) == name_bytes && memcmp(name, variable, name_bytes) == 0)
            return 1;
    }
    return 0;
}

/* A misspelled name would otherwise go unnoticed. */
static void warn_of_unknown_variables(void)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&warned))
        return;
    for (char **variable = environ; variable && *variable; variable++) {
        size_t name_bytes = strcspn(*variable, "=");
        if (strncmp(*variable, prefix, sizeof prefix - 1) == 0 && !is_known(*variable, name_bytes))
            stepaf_log_warn("%.*s is not a setting of this library; stepaf_info -f lists them",
                            (int)(name_bytes < SHOWN_MAX ? name_bytes : SHOWN_MAX), *variable);
    }
}

static const char *get_from_process(const char *name, void *arg)
{
    (void)arg;
    return getenv(name);
}

stepaf_status_t stepaf_env_load(struct stepaf_env *env_p)
{
    stepaf_status_t status = stepaf_env_load_from(env_p, get_from_process, NULL);
    if (status != STEPAF_OK)
        return status;
    stepaf_log_configure((stepaf_log_level_t)env_p->log_level, env_p->log_file);
    warn_of_unknown_variables();
    return STEPAF_OK;
}

static const char *get_boot_from_process(const char *name, void *arg)
{
    static const int wanted[] = {STEPAF_ENV_BOOT, STEPAF_ENV_LOCAL_SIZE, STEPAF_ENV_LOCAL_RANK,
                                 STEPAF_ENV_LOCAL_JOB};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (strcmp(name, stepaf_env_table[wanted[i]].info.name) == 0)
            return get_from_process(name, arg);
    return NULL;
}

stepaf_status_t stepaf_env_load_boot(struct stepaf_env *env_p)
{
    return stepaf_env_load_from(env_p, get_boot_from_process, NULL);
}

int64_t stepaf_env_init_timeout_us(void)
{
    const struct stepaf_env_row *row = &stepaf_env_table[STEPAF_ENV_INIT_TIMEOUT_US];
    const char *value = getenv(row->info.name);
    stepaf_error_t kept = *stepaf_last_error();
    int64_t timeout_us = 0;

    (void)parse_int(row, row->info.fallback, &timeout_us);
    if (value && parse_int(row, value, &timeout_us) != STEPAF_OK)
        (void)stepaf_error_raise(&kept);
    return timeout_us;
}
