/* SPDX-License-Identifier: Apache-2.0 */
#include "boot_common.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <stepaf/boot.h>

/* Variables that launchers set to the number of processes, the innermost launcher's first:
 * mpirun within a Slurm allocation passes on Slurm's as well. */
static const struct {
    const char *variable;
    const char *launcher;
    const char *advice;
} counts[] = {
    {"OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun",
     "use the mpirun of the MPI or PMIx that the program is linked with"},
    {"PMI_SIZE", "a PMI launcher",
     "use srun --mpi=pmix, or the mpirun of the MPI that the program is linked with"},
    {"SLURM_STEP_NUM_TASKS", "srun", "start it with srun --mpi=pmix"},
    {"SLURM_NTASKS", "Slurm", "start it with srun --mpi=pmix"},
    {"STEPAF_SIZE", "stepaf-run, or a script,", "have it call stepaf_init without a bootstrap"},
    {"WORLD_SIZE", "torchrun", "have it call stepaf_init without a bootstrap"},
};

stepaf_status_t stepaf_boot_fail(stepaf_status_t status, const char *format, ...)
{
    char text[STEPAF_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return stepaf_boot_set_error(status, text);
}

int64_t stepaf_boot_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int64_t stepaf_boot_deadline(int64_t timeout_us)
{
    int64_t deadline;
    if (timeout_us < 0)
        timeout_us = 0;
    if (__builtin_mul_overflow(timeout_us, 1000, &deadline) ||
        __builtin_add_overflow(deadline, stepaf_boot_now_ns(), &deadline))
        return INT64_MAX;
    return deadline;
}

int64_t stepaf_boot_pause_ns(int64_t most_ns)
{
    int64_t pause_us = stepaf_boot_advance();
    return pause_us < 0 ? -1 : pause_us < most_ns / 1000 ? pause_us * 1000 : most_ns;
}

stepaf_status_t stepaf_boot_check_alone(const char *library)
{
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
        const char *text = getenv(counts[i].variable);
        if (!text)
            continue;
        long n = strtol(text, NULL, 10);
        if (n <= 1)
            return STEPAF_OK;
        return stepaf_boot_fail(STEPAF_ERR_BOOT,
                                "%s has started %ld processes (%s), but %s sees each of them "
                                "alone, as rank 0 of 1: %s",
                                counts[i].launcher, n, counts[i].variable, library,
                                counts[i].advice);
    }
    return STEPAF_OK;
}
