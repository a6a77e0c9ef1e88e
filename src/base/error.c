/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <stepaf/boot.h>

#include "base/log.h"

static _Thread_local stepaf_error_t last = {
    .status = STEPAF_OK,
    .phase = STEPAF_PHASE_NONE,
    .peer_role = -1,
    .peer_rank = -1,
    .peer_world_rank = -1,
};

/* The last failure, if it is a constant (stepaf_error_fixed) and later than the formatted one;
 * otherwise NULL. */
static _Thread_local const stepaf_error_t *fixed;

/* Never what is constant: owners in C++ put back what they find here. */
const stepaf_error_t *stepaf_last_error(void)
{
    if (fixed)
        last = *fixed;
    fixed = NULL;
    return &last;
}

stepaf_status_t stepaf_error_fixed(const stepaf_error_t *error)
{
    fixed = error;
    return error->status;
}

/* Sentences quote values from outside, and promise to be one line. */
static void blank_control_chars(char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f)
            *text = '?';
    }
}

void stepaf_mark_cut(char *text, size_t room, int length)
{
    static const char mark[] = "...";

    if (length >= 0 && (size_t)length >= room && room > sizeof(mark))
        memcpy(text + room - sizeof(mark), mark, sizeof(mark));
}

static stepaf_status_t set_last(stepaf_status_t status, stepaf_phase_t phase, struct stepaf_who who,
                                const char *format, va_list args)
{
    /* Format aside first: an argument may be the text of the last failure. */
    char text[STEPAF_ERROR_TEXT_MAX];
    stepaf_mark_cut(text, sizeof text, vsnprintf(text, sizeof text, format, args));
    blank_control_chars(text);

    fixed = NULL;
    last.status = status;
    last.phase = phase;
    last.peer_role = who.role;
    last.peer_rank = who.rank;
    last.peer_world_rank = who.world_rank;
    memcpy(last.text, text, sizeof text);
    stepaf_log_debug("%s (%s): %s", stepaf_status_name(status), stepaf_phase_name(phase), text);
    return status;
}

stepaf_status_t stepaf_error_set(stepaf_status_t status, stepaf_phase_t phase, const char *format,
                                 ...)
{
    va_list args;
    va_start(args, format);
    set_last(status, phase, STEPAF_NOBODY, format, args);
    va_end(args);
    return status;
}

stepaf_status_t stepaf_error_set_peer(stepaf_status_t status, stepaf_phase_t phase,
                                      struct stepaf_who who, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_last(status, phase, who, format, args);
    va_end(args);
    return status;
}

stepaf_status_t stepaf_error_no_memory(stepaf_phase_t phase)
{
    return stepaf_error_set(STEPAF_ERR_NO_MEMORY, phase, "out of memory");
}

stepaf_status_t stepaf_boot_set_error(stepaf_status_t status, const char *text)
{
    return stepaf_error_set(status, STEPAF_PHASE_NONE, "%s", text ? text : "");
}

stepaf_status_t stepaf_error_raise(const stepaf_error_t *error)
{
    fixed = NULL;
    memmove(&last, error, sizeof last);
    last.text[sizeof last.text - 1] = '\0';
    return last.status;
}

stepaf_status_t stepaf_error_in(stepaf_status_t status, stepaf_phase_t phase)
{
    if (status && !fixed && last.status == status && last.phase == STEPAF_PHASE_NONE)
        last.phase = phase;
    return status;
}

stepaf_status_t stepaf_status_from(uint32_t number)
{
    switch ((int32_t)number) {
#define KNOWN(name_, number_, text_) case number_:
        STEPAF_STATUS_MAP(KNOWN)
#undef KNOWN
        if ((int32_t)number <= STEPAF_OK)
            return (stepaf_status_t)(int32_t)number;
    }
    return STEPAF_ERR_PROTOCOL;
}
