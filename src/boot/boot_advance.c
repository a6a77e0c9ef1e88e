/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/boot_advance.h"

#include <stepaf/boot.h>

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
    return own.advance ? own.advance(own.arg) : INT64_MAX;
}
