/* SPDX-License-Identifier: Apache-2.0 */
#include "base/interrupt.h"

#include "base/error.h"
#include "base/time.h"

static _Thread_local struct {
    stepaf_interrupt_cb_t callback;
    void *arg;
    unsigned depth; /* nested calls */
    bool is_asking, is_over;
    int64_t asked_ns;
} own;

void stepaf_interrupt_set(stepaf_interrupt_cb_t callback, void *arg)
{
    own.callback = callback;
    own.arg = arg;
}

bool stepaf_interrupt_is_set(void)
{
    return own.callback && own.depth;
}

void stepaf_interrupt_begin(void)
{
    if (own.depth++)
        return;
    own.is_over = false;
    own.asked_ns = stepaf_monotonic_ns();
}

stepaf_status_t stepaf_interrupt_end(stepaf_status_t status, stepaf_phase_t phase)
{
    own.depth--;
    if (!status || !own.is_over)
        return status;
    return stepaf_error_set(STEPAF_ERR_CANCELED, phase, "the program has interrupted the call");
}

bool stepaf_interrupted(void)
{
    if (!own.depth)
        return false; /* what an earlier call was told does not concern this one */
    if (!own.callback || own.is_over || own.is_asking)
        return own.is_over;
    int64_t now_ns = stepaf_monotonic_ns();
    if (now_ns - own.asked_ns < STEPAF_INTERRUPT_US * 1000LL)
        return false;
    own.is_asking = true;
    own.is_over = own.callback(own.arg) != 0;
    own.is_asking = false;
    own.asked_ns = stepaf_monotonic_ns();
    return own.is_over;
}
