/* SPDX-License-Identifier: Apache-2.0 */
/* Long calls that a program may interrupt (stepaf_set_interrupt). Code that waits for other ranks
 * asks whether to stop, and then behaves as after its deadline. */
#ifndef STEPAF_BASE_INTERRUPT_H
#define STEPAF_BASE_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

#include <stepaf/context.h>

enum { STEPAF_INTERRUPT_US = 50000 }; /* between questions */

/* Set the callback of this thread; NULL for none. */
void stepaf_interrupt_set(stepaf_interrupt_cb_t callback, void *arg);
bool stepaf_interrupt_is_set(void);
/* Enclose a call that can be interrupted; calls may nest. End returns @a status; if that is a
 * failure and the call was interrupted, STEPAF_ERR_CANCELED. */
void stepaf_interrupt_begin(void);
stepaf_status_t stepaf_interrupt_end(stepaf_status_t status, stepaf_phase_t phase);
/* Return whether the call must end. Once true, it stays true until the end of the outermost call. */
bool stepaf_interrupted(void);

#endif
