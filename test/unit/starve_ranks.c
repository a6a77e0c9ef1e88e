/* SPDX-License-Identifier: Apache-2.0 */
#include "starve_ranks.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"
#include "starve.h"
#include "unit.h"

enum { TRIALS = 400, WORKERS = 16, SHARES = 8 };
/* Deadlines of trials, and what they are multiplied by where a busy machine may have made ranks
 * miss them. */
enum { COMMIT_US = 1000000, WAIT_US = 2000000, FAR_US = 60000000, PATIENCE = 8 };
enum { PATIENT_LIMIT_S = 50 }; /* several of these deadlines, and less than FAR_US */

static const char *const end_names[] = {"complete", "not begun", "broken", "lost"};

struct trial {
    const struct starve_job *job;
    uint64_t nth;
    int64_t patience; /* 1, or PATIENCE */
    int trace_fd;     /* the trace file of its ranks */
    /* What came of it. */
    bool struck;
    bool left;              /* memory or descriptors */
    int ends[STARVE_RANKS]; /* -1: something was wrong */
    int statuses[STARVE_RANKS];
};

bool starve_again(struct starve_rank *rank, stepaf_status_t status)
{
    bool fits = rank->calls ? status < STEPAF_OK : status == STEPAF_ERR_NO_MEMORY;
    bool again = fits && starve_has_struck() && !rank->once;

    rank->once = rank->once || again;
    if (again)
        starve_feed();
    return again;
}

int starve_commit(struct starve_rank *rank, enum starve_end *end_p)
{
    stepaf_status_t status = stepaf_commit(rank->ctx);

    *end_p = STARVE_COMPLETE;
    if (status) {
        if (rank->is_victim && starve_has_struck())
            rank->once = true;
        starve_feed();
        status = stepaf_commit(rank->ctx);
    }
    if (status) {
        status = stepaf_commit(rank->ctx); /* broken; or another one was, and has left */
        RANK_CHECK(rank->boot, status == STEPAF_ERR_STATE || status == STEPAF_ERR_PEER_LOST);
        *end_p = STARVE_BROKEN;
    }
    return 0;
}

static int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    int n = 0;

    while (directory && readdir(directory))
        n++;
    if (directory)
        closedir(directory);
    return n;
}

static int count_open(void)
{
    return count_entries("/proc/self/fd");
}

static int count_threads(void)
{
    return count_entries("/proc/self/task");
}

/* Whether memory or descriptors are left behind. A thread that finalize has given up gives back
 * what it has when it ends. */
static bool has_left(int n_threads, int n_open, int64_t until_ns)
{
    bool left = starve_is_owed() || count_open() != n_open;

    while (left && count_threads() > n_threads && stepaf_monotonic_ns() < until_ns) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        left = starve_is_owed() || count_open() != n_open;
    }
    return left;
}

static void set_us(const char *name, int64_t us)
{
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)us);
    setenv(name, text, 1);
}

static void set_up_environment(const struct trial *trial)
{
    char path[40];

    setenv("STEPAF_TRANSPORTS", trial->job->transports, 1);
    set_us("STEPAF_TIMEOUT_US", WAIT_US * trial->patience);
    /* Else each trial has hwloc read the whole machine, whose allocations are not tried here. */
    setenv("STEPAF_PROGRESS_CORES", "0-1023", 1);
    /* Who can say that it has failed does so: then nobody waits for a deadline, which is beyond the
     * limit. */
    set_us("STEPAF_INIT_TIMEOUT_US", trial->job->lasting ? WAIT_US * trial->patience : FAR_US);
    set_us("STEPAF_COMMIT_TIMEOUT_US", trial->job->lasting ? COMMIT_US * trial->patience : FAR_US);
    if (trial->job->traces) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", trial->trace_fd);
        setenv("STEPAF_TRACE_FILE", path, 1);
    }
}

static int take_op_peer(const stepaf_boot_t *boot, void *arg)
{
    struct trial *trial = arg;
    struct starve_rank rank = {.boot = boot,
                               .ffn = boot->rank > 0,
                               .is_victim = boot->rank == trial->job->victim,
                               .calls = trial->job->calls};
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE,
                              .role = rank.ffn ? STEPAF_FFN : STEPAF_ATTENTION};
    enum starve_end end = STARVE_NOT_BEGUN;
    stepaf_boot_t own = *boot;
    int64_t limit_s = trial->patience > 1 ? PATIENT_LIMIT_S : STARVE_LIMIT_S;
    int64_t until_ns = stepaf_monotonic_ns() + limit_s * 1000000000;
    int failed = 0;

    own.close = NULL;
    set_up_environment(trial);
    rank.user = calloc(1, trial->job->bytes + 1);
    int n_threads = count_threads(), n_open = count_open();
    if (rank.calls)
        starve_begin_calls(rank.is_victim ? trial->nth : 0);
    else
        starve_begin(rank.is_victim ? trial->nth : 0, trial->job->lasting);
    stepaf_status_t status = stepaf_init(&own, &params, &rank.ctx);
    if (!status) {
        failed = trial->job->play(&rank, &end);
        stepaf_finalize(rank.ctx);
    }
    bool left = has_left(n_threads, n_open, until_ns);
    trial->left = trial->left || left; /* such a trial is not taken again, whatever else is wrong */
    starve_end();
    if (rank.is_victim)
        trial->struck = starve_has_struck();
    RANK_CHECK(boot, !failed);
    RANK_CHECK(boot, !status || !rank.is_victim || rank.calls || status == STEPAF_ERR_NO_MEMORY);
    RANK_CHECK(boot, !starve_leaks());
    RANK_CHECK(boot, count_open() == n_open);
    RANK_CHECK(boot, stepaf_monotonic_ns() < until_ns);
    free(rank.user);
    trial->ends[boot->rank] = end;
    return 0;
}

static bool is_fine(const struct trial *trial)
{
    bool fine = true;

    for (int r = 0; r < STARVE_RANKS; r++)
        fine = fine && !trial->statuses[r] &&
               (trial->ends[r] == STARVE_COMPLETE) == (trial->ends[0] == STARVE_COMPLETE);
    return fine && (trial->struck || trial->ends[0] == STARVE_COMPLETE);
}

/* Whether no deadline can have been missed, and it is as it is. */
static bool is_settled(const struct trial *trial, int64_t took_ns)
{
    int64_t shortest_us = trial->job->lasting ? COMMIT_US : WAIT_US;

    return is_fine(trial) || trial->left || took_ns < shortest_us * 1000;
}

/* Again, with deadlines that are far off, if these may be why it is not fine. */
static void try_number(struct trial *trial)
{
    int64_t began_ns = stepaf_monotonic_ns();

    ranks_run(STARVE_RANKS, take_op_peer, trial, trial->statuses);
    if (is_settled(trial, stepaf_monotonic_ns() - began_ns))
        return;
    fprintf(stderr, "    number %llu: again, with patience\n", (unsigned long long)trial->nth);
    trial->patience = PATIENCE;
    trial->struck = false;
    for (int r = 0; r < STARVE_RANKS; r++)
        trial->ends[r] = -1;
    ranks_run(STARVE_RANKS, take_op_peer, trial, trial->statuses);
}

/* One worker's share of the trials. */
static void work(struct trial *trials, unsigned first)
{
    int trace_fd = memfd_create("trace", MFD_CLOEXEC);

    for (unsigned i = first; i < TRIALS; i += WORKERS) {
        trials[i].trace_fd = trace_fd;
        try_number(&trials[i]);
        if (!trials[i].struck)
            return;
    }
}

static void judge(const struct trial *trial)
{
    CU_ASSERT(is_fine(trial));
    if (is_fine(trial))
        return;
    fprintf(stderr, "    number %llu:", (unsigned long long)trial->nth);
    for (int r = 0; r < STARVE_RANKS; r++)
        fprintf(stderr, " rank %d: %s (%x)%s", r,
                trial->ends[r] < 0 ? "wrong" : end_names[trial->ends[r]],
                (unsigned)trial->statuses[r], r == STARVE_RANKS - 1 ? "\n" : "");
}

static void summarize(const struct trial *trials)
{
    const struct starve_job *job = trials->job;
    unsigned n[STARVE_ENDS] = {0}, i;

    for (i = 0; i < TRIALS && trials[i].struck; i++) {
        if (is_fine(&trials[i]))
            n[trials[i].ends[job->victim]]++;
        judge(&trials[i]);
    }
    fprintf(stderr, "    %s, rank %d, %s: %llu %s:", job->transports, job->victim,
            job->lasting ? "for long" : "once", (unsigned long long)trials[i].nth - 1,
            job->calls ? "system calls" : "allocations");
    for (int e = 0; e < STARVE_ENDS; e++)
        fprintf(stderr, " %u %s%s", n[e], end_names[e], e == STARVE_ENDS - 1 ? "\n" : ",");
    CU_ASSERT_FATAL(i < TRIALS); /* in the last one nothing failed */
    judge(&trials[i]);
    CU_ASSERT(n[STARVE_COMPLETE] >= job->least || getenv("TEST_LIGHT"));
}

/* Numbers to be tried: one of SHARES where TEST_LIGHT is set, the others where such a run follows.
 * Much is the same in all jobs: so it is another share in each. */
static void number_trials(const struct starve_job *job, struct trial *trials)
{
    static unsigned n_jobs;
    bool light = getenv("TEST_LIGHT"), follows = getenv("TEST_LIGHT_FOLLOWS");
    unsigned share = n_jobs++ * 3 % SHARES;
    unsigned n = 0;

    for (unsigned number = 0; n < TRIALS; number++) {
        bool is_light = number % SHARES == share;
        if (is_light ? light || !follows : !light)
            trials[n++] = (struct trial){
                .job = job, .nth = job->begin + number + 1, .patience = 1, .ends = {-1, -1, -1}};
    }
}

/* Trials that wait for a deadline do so side by side. */
void starve_ranks(const struct starve_job *job)
{
    size_t bytes = TRIALS * sizeof(struct trial);
    struct trial *trials =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t workers[WORKERS];

    CU_ASSERT_FATAL(trials != MAP_FAILED);
    number_trials(job, trials);
    for (unsigned w = 0; w < WORKERS; w++) {
        workers[w] = fork();
        CU_ASSERT_FATAL(workers[w] >= 0);
        if (!workers[w]) {
            work(trials, w);
            _exit(0);
        }
    }
    for (unsigned w = 0; w < WORKERS; w++)
        waitpid(workers[w], NULL, 0);
    summarize(trials);
    munmap(trials, bytes);
}
