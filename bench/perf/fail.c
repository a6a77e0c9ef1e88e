/* SPDX-License-Identifier: Apache-2.0 */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>

static char fail_text[PERF_FAIL_MAX];
static int fail_is_loss;

void perf_fail_set(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(fail_text, sizeof(fail_text), format, args);
    va_end(args);
    fail_is_loss = 0;
}

void perf_fail_set_status(stepaf_status_t status, const char *call)
{
    const stepaf_error_t *error = stepaf_last_error();
    /* The detail may belong to an older failure, if the call returned without setting one. */
    const char *text = error->status == status && error->text[0] != '\0'
                           ? error->text
                           : stepaf_status_text(status);

    perf_fail_set("%s: %s (%s)", call, text, stepaf_status_name(status));
    fail_is_loss = status == STEPAF_ERR_PEER_LOST;
}

int perf_fail_is_loss(void)
{
    return fail_is_loss;
}

const char *perf_fail_text(void)
{
    return fail_text;
}
