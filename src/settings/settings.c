/* SPDX-License-Identifier: Apache-2.0 */
/* Read settings. This is the only file that looks for them in the environment. */
#define _GNU_SOURCE 1 /* environ */

#include "settings/settings.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

static const char prefix[] = "STEPAF_";

/* Variables that other parts of the project use, and no library reads. */
static const char *const others[] = {"STEPAF_ROOT", "STEPAF_ACCEPT_BIN"};

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

static int is_name(const char *variable, const char *name)
{
    size_t bytes = strlen(name);
    return strncmp(variable, name, bytes) == 0 && variable[bytes] == '=';
}

static int is_known(const char *variable)
{
    for (int i = 0; i < STEPAF_ENV_COUNT; i++)
        if (is_name(variable, stepaf_env_table[i].info.name))
            return 1;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_name(variable, others[i]))
            return 1;
    return 0;
}

int stepaf_env_next_unknown(int from, char name_p[STEPAF_ENV_UNKNOWN_MAX])
{
    for (int i = 0; environ && environ[i]; i++) {
        const char *variable = environ[i];
        if (i < from || strncmp(variable, prefix, sizeof prefix - 1) != 0 || is_known(variable))
            continue;
        snprintf(name_p, STEPAF_ENV_UNKNOWN_MAX, "%.*s", (int)strcspn(variable, "="), variable);
        return i + 1;
    }
    return 0;
}

void stepaf_env_warn_unknown(void)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    char name[STEPAF_ENV_UNKNOWN_MAX];
    if (atomic_flag_test_and_set(&warned))
        return;
    for (int at = 0; (at = stepaf_env_next_unknown(at, name)) != 0;)
        stepaf_log_warn("%s is not a setting of this library; stepaf_info -f lists them", name);
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
    stepaf_env_warn_unknown();
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
    /* These say which numbers there are, so a joining process needs them now. Where there are other
     * ranks to tell, they are checked with the rest. */
    if (join && *join &&
        (strcmp(name, stepaf_env_table[STEPAF_ENV_ROOM_ATTENTION].info.name) == 0 ||
         strcmp(name, stepaf_env_table[STEPAF_ENV_ROOM_FFN].info.name) == 0))
        value = get_from_process(name, arg);
    /* Used before the other ranks can be told; a bad value is rejected later, with the other
     * settings. */
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
