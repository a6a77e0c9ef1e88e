/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the bootstraps: error sentences, deadlines, and the launcher's environment. */
#ifndef STEPAF_BOOT_COMMON_H
#define STEPAF_BOOT_COMMON_H

#include <stdint.h>

#include <stepaf/status.h>

/* Record a sentence about a failure, and return @a status. */
stepaf_status_t stepaf_boot_fail(stepaf_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Return CLOCK_MONOTONIC in ns: now, and @a timeout_us from now. */
int64_t stepaf_boot_now_ns(void);
int64_t stepaf_boot_deadline(int64_t timeout_us);

/* Let the rank progress, and return how long to wait then, in ns: at most @a most_ns; -1: give
 * up. */
int64_t stepaf_boot_pause_ns(int64_t most_ns);

/* For a process that has found itself alone: return STEPAF_OK if that is plausible;
 * STEPAF_ERR_BOOT if the environment says that a launcher has started several, so that each of
 * them would be alone. The sentence names the launcher and the remedy. @a library: what found
 * the process alone, "MPI" or "PMIx". */
stepaf_status_t stepaf_boot_check_alone(const char *library);

#endif
