/* SPDX-License-Identifier: Apache-2.0 */
/* The job as forked processes: no launcher, no MPI. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cores.h"
#include "fail.h"
#include "job.h"
#include "stop.h"

/* Total arrivals of all ranks at settle: shared by the processes. */
static uint64_t *arrivals;

static int fork_settle(struct perf_job *job, stepaf_context_h ctx)
{
    uint64_t size = (uint64_t)job->channel.size;
    uint64_t mine = __atomic_fetch_add(arrivals, 1, __ATOMIC_ACQ_REL);
    uint64_t all = (mine / size + 1) * size;

    while (__atomic_load_n(arrivals, __ATOMIC_ACQUIRE) < all) {
        if (perf_job_idle(ctx) != 0)
            return -1;
    }
    return 0;
}

/* Every context of the run goes through the tool's own channel, one after the other, so that the
 * library must not close it. */
static stepaf_status_t fork_join(struct perf_job *job, const stepaf_params_t *params,
                                 stepaf_context_h *ctx_p)
{
    stepaf_boot_t boot = job->channel;

    boot.close = NULL;
    return stepaf_init(&boot, params, ctx_p);
}

static int run_child(stepaf_boot_local_t *local, int rank, int n_procs, perf_job_body_t body,
                     void *arg)
{
    struct perf_job job = {.mpi_init_ns = -1, .join = fork_join, .settle = fork_settle};
    stepaf_status_t status = stepaf_boot_local_attach(local, rank, -1, &job.channel);
    int rc;

    perf_cores_bind(rank, n_procs);
    if (status != STEPAF_OK) {
        perf_fail_status(status, "stepaf_boot_local_attach");
        fprintf(stderr, "stepaf_perf: %s\n", perf_fail_text());
        return PERF_EXIT_FAILED;
    }
    rc = body(&job, arg);
    if (job.channel.close != NULL)
        job.channel.close(job.channel.self);
    return rc;
}

/* End the children that still run; @a pids is 0 for those that have ended. */
static void stop_children(const pid_t *pids, int n)
{
    for (int i = 0; i < n; i++) {
        if (pids[i] > 0)
            kill(pids[i], SIGKILL);
    }
}

/* How long the others have to exit by themselves once one has failed: they usually fail too, and
 * have a sentence to print. */
enum { GRACE_MS = 3000, PAUSE_MS = 10 };

/* Ask the children that still run to exit by themselves, as with --forever. */
static void ask_children(const pid_t *pids, int n)
{
    for (int i = 0; i < n; i++) {
        if (pids[i] > 0)
            kill(pids[i], SIGTERM);
    }
}

/* Wait for the next child to end. Returns -1 if none does within *grace_ms_p, which is counted
 * down; negative: wait for ever. */
static pid_t wait_one(const pid_t *pids, int n, int *status_p, int *grace_ms_p)
{
    const struct timespec pause = {0, PAUSE_MS * 1000000L};

    for (;;) {
        pid_t pid = waitpid(-1, status_p, *grace_ms_p < 0 ? 0 : WNOHANG);
        int interrupted = pid < 0 && errno == EINTR;

        if (interrupted && perf_stop_asked())
            ask_children(pids, n);
        if (pid != 0 && !interrupted)
            return pid;
        if (pid == 0 && (*grace_ms_p -= PAUSE_MS) < 0)
            return -1;
        if (pid == 0)
            nanosleep(&pause, NULL);
    }
}

/* Convert the end of @a rank to the program's exit code. @a stopped: this process ended it. */
static int exit_code_of(int rank, int status, int stopped)
{
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    if (!stopped)
        fprintf(stderr, "stepaf_perf: rank %d was ended by signal %d (%s)\n", rank,
                WTERMSIG(status), strsignal(WTERMSIG(status)));
    return PERF_EXIT_FAILED;
}

/* Wait for all children; the first failure counts. */
static int wait_children(pid_t *pids, int n)
{
    int rc = PERF_EXIT_OK;
    int grace_ms = -1;
    int stopped = 0;
    int left = n;

    while (left > 0) {
        int status;
        pid_t pid = wait_one(pids, n, &status, &grace_ms);
        int rank = 0;
        int code;

        if (pid < 0 && rc == PERF_EXIT_OK)
            return PERF_EXIT_FAILED;
        if (pid < 0) {
            stop_children(pids, n);
            stopped = 1;
            grace_ms = -1;
            continue;
        }
        while (rank < n && pids[rank] != pid)
            rank++;
        if (rank == n)
            continue;
        pids[rank] = 0;
        left--;
        code = exit_code_of(rank, status, stopped);
        if (rc == PERF_EXIT_OK && code != PERF_EXIT_OK) {
            rc = code;
            grace_ms = GRACE_MS;
        }
    }
    return rc;
}

/* What the children share. */
static int prepare(int n_procs, stepaf_boot_local_t **local_p)
{
    stepaf_status_t status = stepaf_boot_local_create(n_procs, local_p);

    if (status != STEPAF_OK)
        return perf_fail_status(status, "stepaf_boot_local_create");
    arrivals =
        mmap(NULL, sizeof(*arrivals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (arrivals != MAP_FAILED)
        return 0;
    stepaf_boot_local_destroy(*local_p);
    return perf_fail("no shared memory: %s", strerror(errno));
}

int perf_job_run_fork(int n_procs, perf_job_body_t body, void *arg)
{
    stepaf_boot_local_t *local;
    pid_t *pids = calloc((size_t)n_procs, sizeof(*pids));
    pid_t parent = getpid();
    int rc = pids != NULL ? prepare(n_procs, &local) : perf_fail("out of memory");

    if (rc != 0) {
        fprintf(stderr, "stepaf_perf: %s\n", perf_fail_text());
        free(pids);
        return PERF_EXIT_FAILED;
    }
    fflush(NULL);
    for (int i = 0; i < n_procs; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(PERF_EXIT_FAILED);
            exit(run_child(local, i, n_procs, body, arg));
        }
        if (pids[i] < 0) {
            fprintf(stderr, "stepaf_perf: fork of rank %d: %s\n", i, strerror(errno));
            stop_children(pids, i);
            wait_children(pids, i);
            rc = PERF_EXIT_FAILED;
            goto out;
        }
    }
    rc = wait_children(pids, n_procs);
out:
    munmap(arrivals, sizeof(*arrivals));
    stepaf_boot_local_destroy(local);
    free(pids);
    return rc;
}
