/* SPDX-License-Identifier: Apache-2.0 */
/* stepaf_settings(7), generated from the table of settings. The page is part of the sources, and
 * a test compares it with this output. */
#include <stdio.h>

#include "info.h"

/* Print @a text so that roff shows it as it is. */
static void put_text(const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (; *text; text++) {
        if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '\\')
            fputs("\\e", stdout);
        else
            putchar(*text);
    }
}

static void put_setting(const struct stepaf_env_info *info)
{
    printf(".TP\n.B %s\n", info->name);
    put_text(info->help);
    fputs(".\n.br\nTakes ", stdout);
    put_text(info->syntax);
    if (*info->unit)
        printf(" %s", info->unit);
    fputs(".\nDefault: ", stdout);
    put_text(*info->fallback ? info->fallback : "empty");
    fputs(".\n", stdout);
    if (info->must_agree)
        puts("Must be the same on all ranks.");
}

void info_man(void)
{
    fputs(".\\\" SPDX-License-Identifier: Apache-2.0\n"
          ".\\\" Made by stepaf_info \\-\\-man from the settings.def files of src/; do not edit.\n"
          ".TH STEPAF_SETTINGS 7 \"\" stepaf \"Stepaf manual\"\n"
          ".SH NAME\n"
          "stepaf_settings \\- environment variables that libstepaf reads\n"
          ".SH DESCRIPTION\n"
          "The library reads its settings from the environment once, when\n"
          ".B stepaf_init\n"
          "or\n"
          ".B stepaf_init_mpi\n"
          "makes a context.\n"
          "A value that a setting does not take makes that call fail with\n"
          ".B STEPAF_ERR_SETTING\n"
          "and a sentence that names the variable, the value and what it takes.\n"
          "A variable whose name begins with STEPAF_ and is not listed here is warned of once.\n"
          "Settings that must be the same on all ranks are compared when the ranks meet.\n"
          "Numbers are decimal, without sign or suffix.\n"
          ".PP\n"
          ".B stepaf_info \\-c\n"
          "shows the values in force and where they come from.\n"
          ".SH SETTINGS\n",
          stdout);
    for (int i = 0; i < STEPAF_ENV_COUNT; i++) {
        struct stepaf_env_info info;
        stepaf_env_describe(i, &info);
        put_setting(&info);
    }
    puts(".SH SEE ALSO\n.BR stepaf_info (1)");
}
