/* SPDX-License-Identifier: Apache-2.0 */
/* What -v, -c and -t show, as one JSON object for programs. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include <stepaf/version.h>

#include "info.h"
#include "transport/transport.h"

enum { VALUE_MAX = 4096 };

static void json_text(const char *text, size_t bytes)
{
    putchar('"');
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < ' ' || c == 127)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void json_pair(const char *name, const char *value, const char *end)
{
    printf("\"%s\": ", name);
    json_text(value, strlen(value));
    fputs(end, stdout);
}

/* A line is a name, blanks, "yes" or "no", and often more in parentheses. */
static void json_found(const char *summary)
{
    printf("  \"found\": [");
    for (const char *line = summary, *end; *line; line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        size_t name = strcspn(line, " \n");
        const char *word = line + name + strspn(line + name, " ");
        size_t length = (size_t)(end - word), has = strcspn(word, " \n");
        const char *detail = word + has + strspn(word + has, " (");
        size_t more = detail < end ? (size_t)(end - detail) : 0;
        if (more && detail[more - 1] == ')')
            more--;
        printf("%s\n    {\"name\": ", line == summary ? "" : ",");
        json_text(line, name);
        printf(", \"found\": %s, \"detail\": ",
               length >= 3 && memcmp(word, "yes", 3) == 0 ? "true" : "false");
        json_text(detail, more);
        putchar('}');
    }
    printf("\n  ],\n");
}

static void json_settings(const struct info_env *env)
{
    printf("  \"settings\": [");
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        struct stepaf_env_info info;
        char value[VALUE_MAX] = "";
        stepaf_env_describe(i, &info);
        if (!*env->bad[i])
            stepaf_env_format(&env->values, i, value, sizeof value);
        printf("%s\n    {", i ? "," : "");
        json_pair("name", info.name, ", ");
        json_pair("value", value, ", ");
        json_pair("unit", info.unit, ", ");
        json_pair("default", info.fallback, ", ");
        printf("\"from_environment\": %s", env->values.from_environment[i] ? "true" : "false");
        if (*env->bad[i]) {
            printf(", ");
            json_pair("error", env->bad[i], "");
        }
        putchar('}');
    }
    printf("\n  ],\n");
}

static void json_transports(const struct stepaf_env *env)
{
    printf("  \"transports\": [");
    for (int i = 0; stepaf_transports[i]; i++) {
        const struct stepaf_transport_ops *ops = stepaf_transports[i];
        char reason[STEPAF_REASON_MAX] = "";
        int admitted = stepaf_transport_admitted(env, ops->name);
        int usable = admitted && ops->probe(env, reason);
        if (!admitted)
            snprintf(reason, sizeof reason, "STEPAF_TRANSPORTS does not list it");
        printf("%s\n    {", i ? "," : "");
        json_pair("name", ops->name, ", ");
        printf("\"usable\": %s, ", usable ? "true" : "false");
        json_pair("detail", reason, "}");
    }
    printf("\n  ]\n");
}

void info_json(const struct info_env *env)
{
    printf("{\n  ");
    json_pair("version", stepaf_version(), ",\n  ");
    json_pair("host", STEPAF_CONFIGURE_HOST, ",\n  ");
    json_pair("compiler", STEPAF_CONFIGURE_COMPILER, ",\n");
    json_found(STEPAF_CONFIGURE_SUMMARY);
    json_settings(env);
    json_transports(&env->values);
    printf("}\n");
}
