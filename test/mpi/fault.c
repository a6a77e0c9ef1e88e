/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are killed, stopped, cut off or leave early. --case NAME says which; --bytes N and
 * --delay-us N change what is in flight when it happens. --stop-us N is how long a rank is stopped,
 * --notice-ms N how long it may take to notice a loss. --cut COMMAND takes the network from the
 * last FFN rank's host, --mend COMMAND gives it back. */
#include "fault.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    void (*run)(struct fault *fault);
} cases[] = {
    {"ffn-held", fault_ffn_held},       {"ffn-load", fault_ffn_load},
    {"attention", fault_attention},     {"finalize", fault_finalize},
    {"commit", fault_commit},           {"barrier", fault_barrier},
    {"stopped", fault_stopped},         {"leftover", fault_leftover},
    {"crowded", fault_crowded},         {"cut", fault_cut},
    {"halfway-ffn", fault_halfway_ffn}, {"halfway-attention", fault_halfway_attention},
};

static struct {
    struct fault *fault;
    int victim;
    const char *command; /* instead of the kill */
    int64_t delay_us;
    pthread_t thread;
} killer;

int fault_rounds(const struct fault *fault)
{
    enum { ROUNDS = 50, ROUNDS_MIN = 3, BYTES = 10000000 };
    size_t rounds = BYTES / (fault->bytes ? fault->bytes : 1);

    return rounds > ROUNDS ? ROUNDS : rounds < ROUNDS_MIN ? ROUNDS_MIN : (int)rounds;
}

int fault_world(const struct fault *fault, stepaf_role_t role, int rank)
{
    stepaf_group_t group = role == STEPAF_FFN ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;
    return stepaf_world_rank(fault->job->ctx, group, rank);
}

bool fault_open(struct fault *fault)
{
    static const unsigned kinds[F_PLANS] = {FX_BOTH, FX_SCATTER, FX_BOTH};
    struct hs_job *job = fault->job;

    for (int id = 0; id < F_PLANS; id++)
        if (!fx_declare(job, id, fault->bytes, 1))
            return false;
    for (int id = 0; id < F_PLANS && job->role == STEPAF_ATTENTION; id++)
        if (!fx_plan_make(job, id, fault->bytes, 1, kinds[id], &fault->plans[id]))
            return false;
    if (job->role == STEPAF_FFN && !fx_serve_open(job, fault->bytes))
        return false;
    return HS_OK(stepaf_commit(job->ctx)) && hs_sync(job);
}

/* UCX and libfabric have files in shared memory of their own, by some of their transports. */
static bool has_files_of_others(const struct hs_job *job)
{
    const char *transports = getenv("STEPAF_TRANSPORTS");

    return job->launched ||
           (transports && (strstr(transports, "ucx") || strstr(transports, "ofi")));
}

static void *kill_it(void *arg)
{
    struct hs_job *job = killer.fault->job;
    pid_t pid = atomic_load(&job->shared->pid[killer.victim]);

    (void)arg;
    hs_sleep_us(killer.delay_us);
    /* What it leaves behind has no name: nothing of it can stay when it is gone. */
    HS_INT(hs_count_mappings(pid, "/dev/shm/stepaf"), ==, 0);
    HS_INT(hs_count_links(pid, "/dev/shm/stepaf"), ==, 0);
    if (!has_files_of_others(job)) {
        HS_INT(hs_count_mappings(pid, "/dev/shm/"), ==, 0);
        HS_INT(hs_count_links(pid, "/dev/shm/"), ==, 0);
    }
    hs_doom(job, killer.victim);
    hs_signal(job, killer.victim, SIGKILL);
    return NULL;
}

static void *cut_it(void *arg)
{
    (void)arg;
    hs_sleep_us(killer.delay_us);
    atomic_store(&killer.fault->job->shared->stamp[0], hs_now_ns());
    if (system(killer.command) != 0)
        HS_FAILED("this has failed: %s", killer.command);
    /* It happened in between: who has not noticed yet has time from now on. */
    atomic_store(&killer.fault->job->shared->stamp[0], hs_now_ns());
    return NULL;
}

void fault_kill_later(struct fault *fault, int victim, int64_t delay_us)
{
    killer.fault = fault;
    killer.victim = victim;
    killer.delay_us = delay_us;
    pthread_create(&killer.thread, NULL, kill_it, NULL);
}

void fault_cut_later(struct fault *fault, const char *command, int64_t delay_us)
{
    killer.fault = fault;
    killer.command = command;
    killer.delay_us = delay_us;
    pthread_create(&killer.thread, NULL, cut_it, NULL);
}

void fault_killed(void)
{
    pthread_join(killer.thread, NULL);
}

bool fault_named(struct fault *fault, stepaf_role_t role, int rank)
{
    const stepaf_error_t *error = stepaf_last_error();

    return HS_INT(error->status, ==, STEPAF_ERR_PEER_LOST) && HS_INT(error->peer_role, ==, role) &&
           HS_INT(error->peer_rank, ==, rank) &&
           HS_INT(error->peer_world_rank, ==, fault_world(fault, role, rank)) &&
           HS_INT(error->phase, !=, STEPAF_PHASE_NONE) && HS_TRUE(error->text[0] != '\0');
}

bool fault_others_answered(const struct fault *fault, stepaf_request_h request)
{
    for (int f = 0; f < fault->job->ffn - 1; f++)
        if (stepaf_request_peer(request, f) != STEPAF_OK)
            return false;
    return true;
}

bool fault_in_time(struct fault *fault, const char *what)
{
    int64_t killed = atomic_load(&fault->job->shared->stamp[0]);
    int64_t us = (hs_now_ns() - killed) / 1000;

    if (killed == 0 || us < 0)
        return HS_FAILED("%s: noticed before it happened", what);
    return us <= fault->notice_ms * 1000LL * hs_slow() ||
           HS_FAILED("%s: noticed after %lld us", what, (long long)us);
}

void fault_serve(struct fault *fault)
{
    struct hs_job *job = fault->job;
    stepaf_batch_h batch;
    int n;

    while (atomic_load(&job->shared->stamp[STAMP_END]) == 0 && !hs_failed()) {
        stepaf_status_t status = stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, 20000, &batch, 1, &n);
        if (status == STEPAF_ERR_TIMEOUT)
            continue;
        if (!HS_OK(status) || !fx_look(job, batch))
            return;
        HS_OK(fx_answer(job, batch, STEPAF_RESPOND_RELEASE));
    }
}

static void body(struct hs_job *job)
{
    stepaf_params_t params = {0};
    const char *name = hs_option_text(job, "--case", "");
    struct fault fault = {.job = job,
                          .bytes = (size_t)hs_option_int(job, "--bytes", 256),
                          .delay_us = hs_option_int(job, "--delay-us", 20000),
                          .stop_us = hs_option_int(job, "--stop-us", 200000),
                          .notice_ms = hs_option_int(job, "--notice-ms", NOTICE_MS),
                          .cut = hs_option_text(job, "--cut", "false"),
                          .mend = hs_option_text(job, "--mend", "false")};

    if (strcmp(name, "commit") == 0)
        setenv("STEPAF_COMMIT_TIMEOUT_US", "500000", 1);
    if (strcmp(name, "crowded") == 0) { /* with a lock that finalize must not stumble over */
        setenv("STEPAF_SHM_RING_SLOTS", "4", 1);
        params.field_mask = STEPAF_PARAM_THREADS;
        params.threads = STEPAF_THREADS_MULTIPLE;
    }
    if (!hs_open_with(job, params))
        return;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(cases[i].name, name) == 0) {
            hs_step(cases[i].name);
            cases[i].run(&fault);
            return;
        }
    HS_FAILED("no case \"%s\"", name);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "fault",
                                        .options =
                                            "--case --bytes --delay-us --stop-us --notice-ms "
                                            "--cut --mend",
                                        .limit_s = 60,
                                        .n_boots = 1,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
