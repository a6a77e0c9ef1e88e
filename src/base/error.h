/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's last failure, set where the failure is first noticed. */
#ifndef STEPAF_BASE_ERROR_H
#define STEPAF_BASE_ERROR_H

#include <stepaf/types.h>

/* Size of a buffer for a reason: why something cannot be used here, where that is no failure. */
#define STEPAF_REASON_MAX 192

/* The other end of what failed. */
struct stepaf_who {
    int role;       /* stepaf_role_t, or -1 */
    int rank;       /* within the role's group, or -1 */
    int world_rank; /* or -1 */
};

#define STEPAF_NOBODY ((struct stepaf_who){-1, -1, -1})

/* Mark cut text by "..." at its end. @a length: return value of snprintf into @a room bytes. */
void stepaf_mark_cut(char *text, size_t room, int length);

/* Record a failure that involves no peer, and return @a status. One sentence, no newline. The text
 * of the last failure, stepaf_last_error()->text, may be among the arguments. */
stepaf_status_t stepaf_error_set(stepaf_status_t status, stepaf_phase_t phase, const char *format,
                                 ...) __attribute__((format(printf, 3, 4)));

/* Record a failure of @a who, and return @a status. */
stepaf_status_t stepaf_error_set_peer(stepaf_status_t status, stepaf_phase_t phase,
                                      struct stepaf_who who, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Record that memory is out, and return STEPAF_ERR_NO_MEMORY. */
stepaf_status_t stepaf_error_no_memory(stepaf_phase_t phase);

/* Make @a error the calling thread's last failure (to pass a failure from thread to thread), and
 * return its status. */
stepaf_status_t stepaf_error_raise(const stepaf_error_t *error);

/* Raise a constant error, for failures that callers may meet all the time. */
stepaf_status_t stepaf_error_fixed(const stepaf_error_t *error);

/* Name the phase of the last failure, if it is @a status and was set by code that does not know its
 * purpose. Returns @a status. */
stepaf_status_t stepaf_error_in(stepaf_status_t status, stepaf_phase_t phase);

/* Return the status that a peer names by @a number: STEPAF_OK, a failure, or STEPAF_ERR_PROTOCOL if
 * it is neither. */
stepaf_status_t stepaf_status_from(uint32_t number);

#endif
