/* SPDX-License-Identifier: Apache-2.0 */
/* Long calls that a program may interrupt: stepaf_set_interrupt. What waits for other ranks asks,
 * and goes on as after its deadline. */
#ifndef STEPAF_BASE_INTERRUPT_H
#define STEPAF_BASE_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

#include <stepaf/context.h>

enum { STEPAF_INTERRUPT_US = 50000 }; /* between questions */

/* This thread's; NULL: none. */
void stepaf_interrupt_set(stepaf_interrupt_cb_t callback, void *arg);
bool stepaf_interrupt_is_set(void);
/* Around a call that can be interrupted, or that of one by another. The end returns @a status, or
 * that of an interrupted call, if it has failed. */
void stepaf_interrupt_begin(void);
stepaf_status_t stepaf_interrupt_end(stepaf_status_t status, stepaf_phase_t phase);
/* Whether the call is to end; once it is, it stays so. */
bool stepaf_interrupted(void);

#endif
