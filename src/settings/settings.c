/* SPDX-License-Identifier: Apache-2.0 */
/* Reading settings: the only file that looks at the environment for them. */
#define _GNU_SOURCE 1 /* environ */

#include "settings/settings.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

static const char prefix[] = "STEPAF_";

enum { SHOWN_MAX = 64 }; /* of an unknown name */

_Static_assert((int)STEPAF_ENV_LOG_LEVEL_none == (int)STEPAF_LOG_NONE &&
                   (int)STEPAF_ENV_LOG_LEVEL_trace == (int)STEPAF_LOG_TRACE,
               "words of STEPAF_LOG_LEVEL are the levels in their order");

stepaf_status_t stepaf_env_load_from(struct stepaf_env *env_p, stepaf_env_get_t get, void *arg)
{
    struct stepaf_env env = {0};
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        const struct stepaf_env_row *row = &stepaf_env_table[i];
        const char *value = get(row->info.name, arg);
        env.from_environment[i] = value != NULL;
        stepaf_status_t status = stepaf_env_row_parse(row, value ? value : row->info.fallback,
                                                      stepaf_env_field(&env, row));
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
    static const int wanted[] = {
        STEPAF_ENV_BOOT,        STEPAF_ENV_LOCAL_SIZE, STEPAF_ENV_LOCAL_RANK, STEPAF_ENV_LOCAL_JOB,
        STEPAF_ENV_MEET,        STEPAF_ENV_RANK,       STEPAF_ENV_SIZE,       STEPAF_ENV_SECRET,
        STEPAF_ENV_SECRET_FILE, STEPAF_ENV_NET_PORTS,  STEPAF_ENV_JOIN};
    const char *join = getenv(stepaf_env_table[STEPAF_ENV_JOIN].info.name), *value = NULL;

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (strcmp(name, stepaf_env_table[wanted[i]].info.name) == 0)
            value = get_from_process(name, arg);
    /* Which numbers there are; where there are others to tell, these are judged with the rest. */
    if (join && *join &&
        (strcmp(name, stepaf_env_table[STEPAF_ENV_ROOM_ATTENTION].info.name) == 0 ||
         strcmp(name, stepaf_env_table[STEPAF_ENV_ROOM_FFN].info.name) == 0))
        value = get_from_process(name, arg);
    /* Of use before the others can be told, but judged with the rest. */
    if (value && strcmp(name, stepaf_env_table[STEPAF_ENV_NET_PORTS].info.name) == 0 &&
        stepaf_env_text_trouble(STEPAF_ENV_FORM_PORTS, value))
        value = NULL;
    return value;
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

    (void)stepaf_env_row_parse(row, row->info.fallback, &timeout_us);
    if (value && stepaf_env_row_parse(row, value, &timeout_us) != STEPAF_OK)
        (void)stepaf_error_raise(&kept);
    return timeout_us;
}
