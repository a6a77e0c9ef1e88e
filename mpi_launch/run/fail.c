/* SPDX-License-Identifier: Apache-2.0 */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>

static char fail_text[RUN_FAIL_MAX];

void run_fail_set(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(fail_text, sizeof(fail_text), format, args);
    va_end(args);
}

const char *run_fail_text(void)
{
    return fail_text;
}
