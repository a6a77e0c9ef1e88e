/* SPDX-License-Identifier: Apache-2.0 */
#include "reason.h"

#include <stdarg.h>
#include <stdio.h>

/* One line whatever a file's name or contents put into it. */
static void fill(struct reason *reason_p, int code, const char *format, va_list args)
{
    reason_p->code = code;
    vsnprintf(reason_p->text, sizeof(reason_p->text), format, args);
    for (char *c = reason_p->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

int reason_bad_input(struct reason *reason_p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(reason_p, CODE_BAD_INPUT, format, args);
    va_end(args);
    return -1;
}

int reason_failed(struct reason *reason_p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(reason_p, CODE_FAILED, format, args);
    va_end(args);
    return -1;
}

int reason_no_memory(struct reason *reason_p)
{
    return reason_failed(reason_p, "out of memory");
}
