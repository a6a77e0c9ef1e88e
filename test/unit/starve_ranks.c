/* SPDX-License-Identifier: Apache-2.0 */
#include "starve_ranks.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "starve.h"
#include "unit.h"

enum { TRIALS = 400, WORKERS = 16 };

static const char *const end_names[] = {"complete", "not begun", "broken", "lost"};

struct trial {
    const struct starve_job *job;
    uint64_t nth;
    /* What came of it. */
    bool struck;
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

static int count_open(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int n = 0;

    while (directory && readdir(directory))
        n++;
    if (directory)
        closedir(directory);
    return n;
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
    time_t began = time(NULL);
    int failed = 0;

    own.close = NULL;
    setenv("STEPAF_TRANSPORTS", trial->job->transports, 1);
    setenv("STEPAF_TIMEOUT_US", "2000000", 1);
    /* Else each trial has hwloc read the whole machine, whose allocations are not tried here. */
    setenv("STEPAF_PROGRESS_CORES", "0-1023", 1);
    /* Who can say that it has failed does so: then nobody waits for a deadline, which is beyond the limit. */
    setenv("STEPAF_INIT_TIMEOUT_US", trial->job->lasting ? "2000000" : "60000000", 1);
    setenv("STEPAF_COMMIT_TIMEOUT_US", trial->job->lasting ? "1000000" : "60000000", 1);
    rank.user = calloc(1, trial->job->bytes + 1);
    int n_open = count_open();
    if (rank.calls)
        starve_begin_calls(rank.is_victim ? trial->nth : 0);
    else
        starve_begin(rank.is_victim ? trial->nth : 0, trial->job->lasting);
    stepaf_status_t status = stepaf_init(&own, &params, &rank.ctx);
    if (!status) {
        failed = trial->job->play(&rank, &end);
        stepaf_finalize(rank.ctx);
    }
    starve_end();
    if (rank.is_victim)
        trial->struck = starve_has_struck();
    RANK_CHECK(boot, !failed);
    RANK_CHECK(boot, !status || !rank.is_victim || rank.calls || status == STEPAF_ERR_NO_MEMORY);
    RANK_CHECK(boot, !starve_leaks());
    RANK_CHECK(boot, count_open() == n_open);
    RANK_CHECK(boot, time(NULL) - began < STARVE_LIMIT_S);
    free(rank.user);
    trial->ends[boot->rank] = end;
    return 0;
}

/* One worker's share of the trials. */
static void work(struct trial *trials, unsigned first)
{
    for (unsigned i = first; i < TRIALS; i += WORKERS) {
        ranks_run(STARVE_RANKS, take_op_peer, &trials[i], trials[i].statuses);
        if (!trials[i].struck)
            return;
    }
}

static bool is_fine(const struct trial *trial)
{
    bool fine = true;

    for (int r = 0; r < STARVE_RANKS; r++)
        fine = fine && !trial->statuses[r] &&
               (trial->ends[r] == STARVE_COMPLETE) == (trial->ends[0] == STARVE_COMPLETE);
    return fine;
}

static void summarize(const struct trial *trials)
{
    const struct starve_job *job = trials->job;
    unsigned n[STARVE_ENDS] = {0}, i;

    for (i = 0; i < TRIALS && trials[i].struck; i++) {
        const struct trial *trial = &trials[i];
        if (is_fine(trial))
            n[trial->ends[trial->job->victim]]++;
        CU_ASSERT(is_fine(trial));
        if (!is_fine(trial))
            fprintf(stderr, "    number %llu:", (unsigned long long)trial->nth);
        for (int r = 0; r < STARVE_RANKS && !is_fine(trial); r++)
            fprintf(stderr, " rank %d: %s (%x)%s", r,
                    trial->ends[r] < 0 ? "wrong" : end_names[trial->ends[r]],
                    (unsigned)trial->statuses[r], r == STARVE_RANKS - 1 ? "\n" : "");
    }
    fprintf(stderr, "    %s, rank %d, %s: %llu %s:", job->transports, job->victim,
            job->lasting ? "for long" : "once", (unsigned long long)trials[i].nth - 1,
            job->calls ? "system calls" : "allocations");
    for (int e = 0; e < STARVE_ENDS; e++)
        fprintf(stderr, " %u %s%s", n[e], end_names[e], e == STARVE_ENDS - 1 ? "\n" : ",");
    CU_ASSERT_FATAL(i < TRIALS); /* in the last one nothing failed */
    CU_ASSERT(is_fine(&trials[i]) && trials[i].ends[0] == STARVE_COMPLETE);
    CU_ASSERT(n[STARVE_COMPLETE] >= job->least || getenv("TEST_LIGHT"));
}

/* Trials that wait for a deadline do so side by side. */
void starve_ranks(const struct starve_job *job)
{
    size_t bytes = TRIALS * sizeof(struct trial);
    unsigned step = getenv("TEST_LIGHT") ? 4 : 1;
    struct trial *trials =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t workers[WORKERS];

    CU_ASSERT_FATAL(trials != MAP_FAILED);
    for (unsigned i = 0; i < TRIALS; i++)
        trials[i] = (struct trial){job, job->begin + i * step + 1, .ends = {-1, -1, -1}};
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
