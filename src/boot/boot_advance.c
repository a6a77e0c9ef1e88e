/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/boot_advance.h"

#include <stepaf/boot.h>

#include "base/interrupt.h"

static _Thread_local struct {
    stepaf_boot_advance_t advance;
    void *arg;
} own;

void stepaf_boot_set_advance(stepaf_boot_advance_t advance, void *arg)
{
    own.advance = advance;
    own.arg = arg;
}

int64_t stepaf_boot_advance(void)
{
    int64_t pause_us = own.advance ? own.advance(own.arg) : INT64_MAX;

    if (!stepaf_interrupt_is_set() || pause_us < 0)
        return pause_us;
    if (stepaf_interrupted())
        return -1;
    return pause_us < STEPAF_INTERRUPT_US ? pause_us : STEPAF_INTERRUPT_US;
}
