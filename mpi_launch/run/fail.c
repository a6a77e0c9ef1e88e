/* SPDX-License-Identifier: Apache-2.0 */
#include "fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char fail_text[RUN_FAIL_MAX];

void run_fail_set(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(fail_text, sizeof(fail_text), format, args);
    va_end(args);
    /* Input is quoted in sentences; a sentence stays one line whatever the input is. */
    for (char *c = fail_text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

const char *run_fail_text(void)
{
    return fail_text;
}

int run_fail_program(const char *name)
{
    int error = errno; /* printing may fail as well */

    fprintf(stderr, "stepaf-run: cannot run %s: %s\n", name, strerror(error));
    return error == ENOENT ? RUN_EXIT_NOT_FOUND : RUN_EXIT_NOT_RUN;
}
