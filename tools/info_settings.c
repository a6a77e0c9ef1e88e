/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "info.h"

enum { COLUMNS = 80, VALUE_MAX = 4096 };

void info_print_wrapped(const char *text, int indent)
{
    int column = 0;
    while (*text) {
        int bytes = (int)strcspn(text, " ");
        if (column > indent && column + 1 + bytes > COLUMNS) {
            putchar('\n');
            column = 0;
        }
        column += column == 0 ? printf("%*s", indent, "") : printf(" ");
        column += printf("%.*s", bytes, text);
        text += bytes;
        text += strspn(text, " ");
    }
    putchar('\n');
}

void info_settings(const struct info_env *env, int only_from_environment)
{
    const struct stepaf_env *values = &env->values;
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        struct stepaf_env_info info;
        char value[VALUE_MAX];
        stepaf_env_describe(i, &info);
        if (*env->bad[i]) {
            printf("%-26s = %-12s %s\n", info.name, "(bad value)", env->bad[i]);
            continue;
        }
        if (only_from_environment && !values->from_environment[i])
            continue;
        stepaf_env_format(values, i, value, sizeof value);
        printf("%-26s = %-12s %s%s%s\n", info.name, *value ? value : "(empty)", info.unit,
               *info.unit ? ", " : "",
               values->from_environment[i] ? "from the environment" : "default");
    }
}

void info_settings_help(void)
{
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        struct stepaf_env_info info;
        char facts[1024];
        stepaf_env_describe(i, &info);
        snprintf(facts, sizeof facts, "Takes %s%s%s. Default: %s.%s", info.syntax,
                 *info.unit ? " " : "", info.unit, *info.fallback ? info.fallback : "empty",
                 info.must_agree ? " Must be the same on all ranks." : "");
        printf("%s%s\n", i ? "\n" : "", info.name);
        info_print_wrapped(info.help, 4);
        info_print_wrapped(facts, 4);
    }
}
