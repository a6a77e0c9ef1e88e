/* SPDX-License-Identifier: Apache-2.0 */
/* Context, order of events and options of a test's rank. */
#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BOOT_NEW, BOOT_ATTACHED, BOOT_USED };
enum { SYNC_LIMIT_S = 30 };

const char *hs_option_text(const struct hs_job *job, const char *name, const char *fallback)
{
    for (int i = 1; i + 1 < job->argc; i++)
        if (strcmp(job->argv[i], name) == 0)
            return job->argv[i + 1];
    return fallback;
}

long long hs_option_int(const struct hs_job *job, const char *name, long long fallback)
{
    const char *text = hs_option_text(job, name, NULL);
    return text != NULL ? strtoll(text, NULL, 0) : fallback;
}

/* Application number of a forked rank: --apps A,F says which are 0 and which are 1. */
static int app_number(const struct hs_job *job)
{
    return job->apps == NULL ? -1 : job->rank >= atoi(job->apps);
}

/* As a process that was started by itself. */
static stepaf_status_t init_joined(const struct hs_job *job, const stepaf_params_t *params,
                                   stepaf_context_h *ctx_p)
{
    char number[16];

    snprintf(number, sizeof number, "%d", job->starter);
    setenv("STEPAF_LOCAL_JOB", number, 1);
    snprintf(number, sizeof number, "%d", job->size);
    setenv("STEPAF_LOCAL_SIZE", number, 1);
    snprintf(number, sizeof number, "%d", job->rank);
    setenv("STEPAF_LOCAL_RANK", number, 1);
    return stepaf_init(NULL, params, ctx_p);
}

/* As a process that meets the others over TCP, as STEPAF_MEET says, or torchrun's variables. */
static stepaf_status_t init_met(const struct hs_job *job, const char *who,
                                const stepaf_params_t *params, stepaf_context_h *ctx_p)
{
    bool by_torchrun = !strcmp(who, "torchrun");
    char number[16];

    setenv("STEPAF_BOOT", "tcp", 1);
    snprintf(number, sizeof number, "%d", job->size);
    setenv(by_torchrun ? "WORLD_SIZE" : "STEPAF_SIZE", number, 1);
    snprintf(number, sizeof number, "%d", job->rank);
    setenv(by_torchrun ? "RANK" : "STEPAF_RANK", number, 1);
    return stepaf_init(NULL, params, ctx_p);
}

stepaf_status_t hs_init(struct hs_job *job, int boot, const stepaf_params_t *params,
                        stepaf_context_h *ctx_p)
{
    stepaf_status_t status;

    if (job->launched)
        return hs_launch_init(params, ctx_p);
    if (getenv("TEST_BOOT_JOIN"))
        return init_joined(job, params, ctx_p);
    if (getenv("TEST_BOOT_TCP"))
        return init_met(job, getenv("TEST_BOOT_TCP"), params, ctx_p);
    if (boot < 0 || boot >= HS_MAX_BOOTS || job->boot_state[boot] == BOOT_USED)
        return STEPAF_ERR_STATE;
    if (job->boot_state[boot] == BOOT_NEW) {
        status = stepaf_boot_local_attach(job->locals[boot], job->rank, app_number(job),
                                          &job->boots[boot]);
        if (status != STEPAF_OK)
            return status;
        job->boot_state[boot] = BOOT_ATTACHED;
    }
    status = stepaf_init(&job->boots[boot], params, ctx_p);
    if (status == STEPAF_OK)
        job->boot_state[boot] = BOOT_USED;
    return status;
}

/* TEST_KEPT_FDS: what a library below the tested one keeps open once it is used, such as librdmacm
 * two for each device. */
static int kept(const char *variable)
{
    const char *text = getenv(variable);

    return text != NULL ? (int)strtol(text, NULL, 10) : 0;
}

void hs_take_place(struct hs_job *job)
{
    job->role = stepaf_role(job->ctx);
    job->attn = stepaf_size(job->ctx, STEPAF_GROUP_ATTENTION);
    job->ffn = stepaf_size(job->ctx, STEPAF_GROUP_FFN);
    job->index =
        stepaf_rank(job->ctx, job->role == STEPAF_FFN ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION);
    job->peers = stepaf_n_peers(job->ctx);
}

bool hs_open_with(struct hs_job *job, stepaf_params_t params)
{
    job->fds = hs_count_fds() + kept("TEST_KEPT_FDS");
    if (job->split != NULL && !(params.field_mask & STEPAF_PARAM_SPLIT)) {
        params.field_mask |= STEPAF_PARAM_SPLIT;
        params.split = job->split;
    }
    hs_step("init");
    if (!HS_OK(hs_init(job, 0, &params, &job->ctx)))
        return false;
    hs_take_place(job);
    return HS_INT(job->attn + job->ffn, ==, job->size) && HS_INT(job->index, >=, 0);
}

bool hs_open(struct hs_job *job)
{
    return hs_open_with(job, (stepaf_params_t){0});
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
/* A thread that has been joined is listed until the kernel has done away with it. An emulator has
 * one of its own. */
static void check_threads(void)
{
    int threads = 1 + kept("TEST_KEPT_THREADS");

    for (int i = 0; i < 1000 && hs_count_threads() > threads; i++)
        hs_sleep_us(1000);
    HS_INT(hs_count_threads(), ==, threads);
}
#endif

void hs_close(struct hs_job *job)
{
    if (job->ctx == NULL)
        return;
    hs_step("finalize");
    stepaf_finalize(job->ctx);
    job->ctx = NULL;
    if (job->launched || job->noisy)
        return; /* MPI, PMIx and CUDA open and map what they like, when they like */
    HS_INT(hs_count_fds(), <=, job->fds);
    HS_INT(hs_count_mappings(getpid(), "/dev/shm/"), ==, 0);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    check_threads();
#endif
}

static bool wait_for_all(struct hs_job *job, bool drive)
{
    struct hs_shared *shared = job->shared;
    int64_t deadline = hs_now_ns() + SYNC_LIMIT_S * 1000000000LL * hs_slow();
    int round = atomic_fetch_add(&shared->arrived[job->rank], 1) + 1;

    for (int rank = 0, turns = 0; rank < job->size; turns++) {
        if (atomic_load(&shared->arrived[rank]) >= round || atomic_load(&shared->doomed[rank])) {
            rank++;
            continue;
        }
        if (drive && job->ctx != NULL)
            stepaf_progress(job->ctx);
        if (atomic_load(&shared->verdict[rank]) != 0 && atomic_load(&shared->arrived[rank]) < round)
            return HS_FAILED("rank %d ended before it came to round %d", rank, round);
        if (hs_now_ns() > deadline)
            return HS_FAILED("rank %d did not come to round %d", rank, round);
        if (turns < 2000)
            hs_yield();
        else
            hs_sleep_us(100);
    }
    if (drive && job->ctx != NULL) /* take in what the others have sent before they came */
        stepaf_progress(job->ctx);
    return true;
}

bool hs_sync(struct hs_job *job)
{
    return wait_for_all(job, true);
}

bool hs_pause(struct hs_job *job)
{
    return wait_for_all(job, false);
}

bool hs_hopeless(const struct hs_job *job)
{
    for (int rank = 0; rank < job->size; rank++)
        if (atomic_load(&job->shared->verdict[rank]) == HS_FAIL + 1)
            return true;
    return false;
}

bool hs_same_host(const struct hs_job *job, int rank)
{
    return atomic_load(&job->shared->host[rank]) == atomic_load(&job->shared->host[job->rank]);
}

void hs_doom(struct hs_job *job, int victim)
{
    atomic_store(&job->shared->doomed[victim], 1);
}

void hs_signal(struct hs_job *job, int victim, int signal_number)
{
    pid_t pid = atomic_load(&job->shared->pid[victim]);

    if (signal_number == SIGKILL) {
        atomic_store(&job->shared->killed[victim], 1);
        atomic_store(&job->shared->died[victim], 1);
    }
    atomic_store(&job->shared->stamp[0], hs_now_ns());
    if (pid <= 1 || kill(pid, signal_number) != 0)
        HS_FAILED("signal %d to rank %d (process %d): %s", signal_number, victim, (int)pid,
                  strerror(errno));
}

bool hs_launcher_whole(const struct hs_job *job)
{
    for (int rank = 0; rank < job->size; rank++)
        if (atomic_load(&job->shared->killed[rank]))
            return false;
    return !job->abandoned;
}
