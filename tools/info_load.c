/* SPDX-License-Identifier: Apache-2.0 */
/* Loading of the settings, even if some have a bad value, which init would reject. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stepaf/status.h>

#include "base/log.h"
#include "info.h"

/* Return only the setting that @a arg names. */
static const char *get_one(const char *name, void *arg)
{
    return strcmp(name, arg) == 0 ? getenv(name) : NULL;
}

/* Return every setting except the known bad ones. */
static const char *get_good(const char *name, void *arg)
{
    const struct info_env *env = arg;
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        struct stepaf_env_info info;
        stepaf_env_describe(i, &info);
        if (strcmp(info.name, name) == 0)
            return *env->bad[i] ? NULL : getenv(name);
    }
    return NULL;
}

/* Try each setting alone, as all together are rejected for the first bad one. */
static void find_bad(struct info_env *env)
{
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        struct stepaf_env_info info;
        struct stepaf_env values = {0};
        stepaf_env_describe(i, &info);
        if (stepaf_env_load_from(&values, get_one, (void *)info.name) != STEPAF_OK) {
            info_failed("settings");
            snprintf(env->bad[i], sizeof env->bad[i], "%s", stepaf_last_error()->text);
        }
        stepaf_env_free(&values);
    }
}

int info_load(struct info_env *env_p)
{
    *env_p = (struct info_env){0};
    if (stepaf_env_load(&env_p->values) == STEPAF_OK)
        return 1;
    find_bad(env_p);
    if (stepaf_env_load_from(&env_p->values, get_good, env_p) != STEPAF_OK) {
        info_failed("settings");
        exit(1);
    }
    stepaf_log_configure((stepaf_log_level_t)env_p->values.log_level, env_p->values.log_file);
    stepaf_env_warn_unknown();
    return 0;
}
