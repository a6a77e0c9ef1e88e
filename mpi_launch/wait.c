/* SPDX-License-Identifier: Apache-2.0 */
#include "wait.h"
#include "roll_call.h"

#include <sched.h>
#include <time.h>

/* MPICH's MPI_STATUSES_IGNORE is the address 1: gcc sees an array there, of no elements. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

enum {
    YIELDS = 1000,     /* polls with only a yield in between */
    SLEEP_NS = 100000, /* between later polls: some rank is late, and may need this core */
};

stepaf_status_t stepaf_mpi_error(int code, const char *what)
{
    char reason[MPI_MAX_ERROR_STRING] = "";
    int bytes = 0;
    int class = MPI_ERR_OTHER;
    MPI_Error_class(code, &class);
    MPI_Error_string(code, reason, &bytes);
    return stepaf_boot_fail(class == MPI_ERR_NO_MEM ? STEPAF_ERR_NO_MEMORY : STEPAF_ERR_BOOT,
                            "MPI bootstrap: %s: %s", what, reason);
}

static stepaf_status_t say_late(const struct stepaf_roll_call *call, const char *what)
{
    char missing[128];

    stepaf_roll_call_list(call, missing, sizeof missing);
    return stepaf_boot_fail(STEPAF_ERR_TIMEOUT,
                            "MPI bootstrap: %s: some rank did not arrive in time%s", what, missing);
}

static stepaf_status_t poll_all(MPI_Request *requests, int n, int64_t deadline_ns, const char *what,
                                struct stepaf_roll_call *call)
{
    for (int tries = 0;; tries++) {
        int done = 0;
        int code = MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE);
        int64_t now_ns = stepaf_boot_now_ns();
        if (code != MPI_SUCCESS)
            return stepaf_mpi_error(code, what);
        if (done)
            return STEPAF_OK;
        int64_t pause_ns = stepaf_boot_pause_ns(SLEEP_NS);
        if (pause_ns < 0 || now_ns >= deadline_ns)
            return say_late(call, what);
        if (tries >= YIELDS || now_ns >= call->at_ns)
            stepaf_roll_call_step(call, now_ns);
        if (tries < YIELDS)
            sched_yield();
        else
            nanosleep(&(struct timespec){0, pause_ns}, NULL);
    }
}

stepaf_status_t stepaf_mpi_wait(const struct stepaf_mpi *mpi, MPI_Request *requests, int n,
                                int64_t deadline_ns, const char *what)
{
    struct stepaf_roll_call call = stepaf_roll_call_begin(mpi, deadline_ns);
    stepaf_status_t status = poll_all(requests, n, deadline_ns, what, &call);

    stepaf_roll_call_end(&call);
    return status;
}
