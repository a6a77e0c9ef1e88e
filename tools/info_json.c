/* SPDX-License-Identifier: Apache-2.0 */
/* What -v, -c and -t show, as one JSON object for programs. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include <stepaf/version.h>

#include "info.h"
#include "transport/transport.h"

enum { VALUE_MAX = 4096 };

/* A value of the environment may be no UTF-8: then null. */
static json_t *json_text(const char *text)
{
    json_t *string = json_string(text);

    return string ? string : json_null();
}

/* A line is a name, blanks, "yes" or "no", and often more in parentheses. */
static json_t *json_found(const char *summary)
{
    json_t *found = json_array();

    for (const char *line = summary, *end; *line; line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        size_t name = strcspn(line, " \n");
        const char *word = line + name + strspn(line + name, " ");
        size_t length = (size_t)(end - word), has = strcspn(word, " \n");
        const char *detail = word + has + strspn(word + has, " (");
        size_t more = detail < end ? (size_t)(end - detail) : 0;
        if (more && detail[more - 1] == ')')
            more--;
        json_array_append_new(found, json_pack("{s:s%, s:b, s:s%}", "name", line, name, "found",
                                               length >= 3 && !memcmp(word, "yes", 3), "detail",
                                               detail, more));
    }
    return found;
}

static json_t *json_settings(const struct info_env *env)
{
    json_t *settings = json_array();

    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        struct stepaf_env_info info;
        char value[VALUE_MAX] = "";
        stepaf_env_describe(i, &info);
        if (!*env->bad[i])
            stepaf_env_format(&env->values, i, value, sizeof value);
        json_t *setting = json_pack("{s:s, s:o, s:s, s:s, s:b}", "name", info.name, "value",
                                    json_text(value), "unit", info.unit, "default", info.fallback,
                                    "from_environment", env->values.from_environment[i]);
        if (*env->bad[i])
            json_object_set_new(setting, "error", json_text(env->bad[i]));
        json_array_append_new(settings, setting);
    }
    return settings;
}

static json_t *json_transports(const struct stepaf_env *env)
{
    json_t *transports = json_array();

    for (int i = 0; stepaf_transports[i]; i++) {
        const struct stepaf_transport_ops *ops = stepaf_transports[i];
        char reason[INFO_TRANSPORT_TEXT] = "";
        int admitted = stepaf_transport_admitted(env, ops);
        int usable = admitted && info_transport(env, ops, reason);
        if (!admitted)
            snprintf(reason, sizeof reason, "%s", info_not_listed(env));
        json_array_append_new(transports, json_pack("{s:s, s:b, s:o}", "name", ops->name, "usable",
                                                    usable, "detail", json_text(reason)));
    }
    return transports;
}

int info_json(const struct info_env *env)
{
    json_t *all = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "version", stepaf_version(), "host",
                            STEPAF_CONFIGURE_HOST, "compiler", STEPAF_CONFIGURE_COMPILER, "found",
                            json_found(STEPAF_CONFIGURE_SUMMARY), "settings", json_settings(env),
                            "transports", json_transports(&env->values));
    int done = all && json_dumpf(all, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;

    if (!done)
        fputs("stepaf_info: --json: the output cannot be written\n", stderr);
    json_decref(all);
    return done;
}
