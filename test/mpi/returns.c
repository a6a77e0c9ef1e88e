/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that come back: in each round one is killed, the others commit without it and go on, a new
 * process takes its place by their next commit, and everybody works with it; every byte is
 * compared. Beside each rank there is a process without a context, which starts the new one, as
 * whatever supervises processes would: its parent, or its child where a launcher has started the
 * rank.
 *
 * --rounds N. --seed N: who dies. --figures 1: print times and what is held. --wrong 1: before it
 * returns, processes ask that do not fit, or in vain. --once 1: one commit goes on without it and
 * takes the next one in. --leave 1: it is not killed, but leaves by a commit. --role 0 or 1: only
 * attention, or FFN ranks die. --two 1: two die at once, and return by one commit. --first N: so do
 * the first N. --stop 1: the first to return hangs, and the others go on without it. --refused 1:
 * it cannot reach the last rank, and goes itself. --strict 1: the first use comes in the time that
 * is promised.
 * --moves 1: each process is on the next host of TEST_HOSTS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "returns.h"

enum {
    SETTLED = 4, /* rounds after which nothing grows any more */
    FIRST_USE_MS = 1000
};

/* ---- a rank ---- */

static bool do_round(struct rank *rank)
{
    struct hs_job *job = rank->job;
    int victim = returns_victim_of(rank, rank->round);

    if (!rank->round && !rank->is_new && job->attn == 1 && hs_option_int(job, "--leave", 0) &&
        !returns_refuse_last(rank))
        return false;
    if (!rank->is_new) {
        if (!returns_work(rank, true) || !returns_meet(rank, job->size))
            return false;
        if (returns_dies_in(rank, rank->round, job->rank))
            returns_be_lost(rank);
        if (!returns_lose_one(rank, victim))
            return false;
        for (int i = 0; i < returns_n_dead(rank) && !hs_option_int(job, "--once", 0); i++)
            if (!returns_await_state(rank, returns_dead_of(rank, rank->round, i),
                                     STEPAF_MEMBER_ASKS))
                return false;
        if ((hs_option_int(job, "--stop", 0) || hs_option_int(job, "--refused", 0)) &&
            !returns_do_without(rank, victim))
            return false;
    }
    if (!returns_commit(rank, STEPAF_COMMIT_ADMIT) || !returns_work(rank, true))
        return false;
    /* Before the others may be in the next round, and one be killed. */
    for (int r = 0; r < job->size; r++) {
        stepaf_member_state_t state = returns_state_of(rank, r);
        if (state != STEPAF_MEMBER_IN && state != STEPAF_MEMBER_SLOW)
            HS_FAILED("round %d: world rank %d is %d: %s", rank->round, r, (int)state,
                      stepaf_members_reason(job->ctx, r));
    }
    if (!returns_look_at_map(rank, "has returned") || !returns_meet_by_barrier(rank, job->size))
        return false;
    rank->is_new = false;
    rank->epoch = stepaf_epoch(job->ctx);
    return !hs_failed();
}

/* What rank 0 or 1 holds, of a process that has been there for some rounds. */
struct held {
    int round, fds, mappings;
    size_t resident;
};

static void compare_held(const struct rank *rank, struct held *held)
{
    struct held now = {.round = rank->round,
                       .fds = hs_count_fds(),
                       .mappings = hs_count_mappings(getpid(), ""),
                       .resident = hs_resident_bytes()};

    if (!held->round) {
        *held = now;
        return;
    }
    /* Who has said something to whom first decides on how many connections members have: two at
     * most. */
    HS_INT(now.fds, <=, held->fds + 2 * rank->job->size);
    HS_INT(now.mappings, <=, held->mappings + 2); /* of the allocator */
    if (hs_option_int(rank->job, "--figures", 0) &&
        rank->round + 1 == hs_option_int(rank->job, "--rounds", 3))
        printf("[%d] round %d, since round %d: descriptors %d (were %d), mappings %d (%d), "
               "resident %zu KiB (%zu)\n",
               rank->job->rank, rank->round, held->round, now.fds, held->fds, now.mappings,
               held->mappings, now.resident >> 10, held->resident >> 10);
}

/* The names of links that the first process of a rank was given: valid until finalize, whoever returns. */
struct names {
    const char *given[HS_MAX_RANKS];
    char text[HS_MAX_RANKS][32];
};

static void take_names(const struct hs_job *job, struct names *names)
{
    for (int i = 0; i < HS_MAX_RANKS; i++) {
        names->given[i] = stepaf_transport_name(job->ctx, i);
        snprintf(names->text[i], sizeof(names->text[i]), "%s",
                 names->given[i] ? names->given[i] : "");
    }
}

static void check_names(const struct names *names)
{
    for (int i = 0; i < HS_MAX_RANKS; i++)
        if (names->given[i])
            HS_TRUE(strcmp(names->given[i], names->text[i]) == 0);
}

static void be_rank(struct hs_job *job, int life)
{
    struct rank rank = {.job = job,
                        .exchange = {.job = job, .bytes = RETURNS_BYTES},
                        .round = (int)atomic_load(&job->shared->stamp[STAMP_ROUND])};
    int rounds = (int)hs_option_int(job, "--rounds", 3);
    struct names names = {0};
    struct held held = {0};
    bool is_open;

    returns_begin(&rank);
    if (life == 0) {
        setenv("STEPAF_SECRET", returns_secret, 1);
        returns_set_ports(job);
        is_open = hs_open(job);
    } else {
        job->fds = hs_count_fds();
        if (hs_option_int(job, "--moves", 0) &&
            !hs_move_to_host(getenv("TEST_HOSTS"), job->rank + life))
            return;
        if (hs_option_int(job, "--wrong", 0))
            returns_ask_in_vain(&rank);
        if (hs_option_int(job, "--refused", 0) &&
            atomic_load(&job->shared->stamp[STAMP_REFUSED]) == rank.round)
            returns_be_refused(&rank);
        atomic_store(&job->shared->stamp[STAMP_INIT], hs_now_ns());
        hs_step("init, to return");
        is_open = HS_OK(returns_init_back(&rank, returns_secret, job->rank, 60000000, &job->ctx));
    }
    if (!is_open)
        return;
    hs_take_place(job);
    rank.exchange.n_ops = (uint64_t)rank.round * 1000000;
    rank.is_new = life > 0;
    if (hs_option_int(job, "--leave", 0) && !life) {
        stepaf_commit_params_t leave = {.field_mask = STEPAF_COMMIT_LEAVING, .leaving = 1};
        HS_REFUSED(stepaf_commit_with(job->ctx, &leave), STEPAF_ERR_STATE);
    }
    if (!returns_prepare(&rank) || (!life && !HS_OK(stepaf_commit(job->ctx))))
        return;
    if (!life)
        take_names(job, &names);
    rank.epoch = 1;
    for (; rank.round < rounds && !hs_failed(); rank.round++) {
        int left = job->size - returns_n_dead(&rank);
        rank.met = returns_met_before(&rank, rank.round) +
                   (rank.is_new ? job->size + returns_n_apart(&rank) * left : 0);
        rank.ops = 0;
        for (int r = 0; r < rank.round; r++)
            rank.ops += 2 * job->attn + returns_attn_left(&rank, r);
        if (rank.is_new)
            rank.ops += job->attn + returns_attn_left(&rank, rank.round);
        atomic_store(&job->shared->stamp[STAMP_ROUND], rank.round);
        if (!do_round(&rank))
            return;
        if (rank.round >= SETTLED && life == 0)
            compare_held(&rank, &held);
    }
    if (job->rank == 0 && hs_option_int(job, "--figures", 0))
        printf("of %d ranks, %d returned: from its init to the first operation that uses it "
               "%.1f ms at most (bound %d), the commit that admits it %.1f ms at most\n",
               job->size, rounds, (double)atomic_load(&job->shared->stamp[STAMP_FIRST_USE]) / 1e6,
               FIRST_USE_MS, (double)atomic_load(&job->shared->stamp[STAMP_COMMIT]) / 1e6);
    HS_INT(atomic_load(&job->shared->stamp[STAMP_FIRST_USE]), >, 0);
    /* Tests share the processors with others: there it is only not to be a matter of time-outs. */
    if (!hs_option_int(job, "--wrong", 0) && !hs_option_int(job, "--stop", 0))
        HS_INT(atomic_load(&job->shared->stamp[STAMP_FIRST_USE]) / 1000000, <,
               FIRST_USE_MS * hs_slow() * (hs_option_int(job, "--strict", 0) ? 1 : 10));
    check_names(&names);
    returns_end(&rank);
}

/* Start the rank's process, and again whenever it is killed. */
static void supervise(struct hs_job *job, int first_life)
{
    for (int life = first_life;; life++) {
        int status = 0;
        fflush(NULL);
        pid_t parent = getpid(), pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            atomic_store(&job->shared->pid[job->rank], getpid());
            be_rank(job, life);
            fflush(NULL);
            exit(hs_failed() ? 1 : 0);
        }
        if (!HS_INT(pid, >, 0) || !HS_INT(waitpid(pid, &status, 0), ==, pid))
            return;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
            atomic_exchange(&job->shared->killed[job->rank], 0))
            continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) == RETURNS_HAS_LEFT)
            continue;
        if (!WIFEXITED(status) || WEXITSTATUS(status))
            HS_FAILED("its process has ended with status %x", status);
        return;
    }
}

/* Where a launcher has started the rank, it is that process itself, as long as it lives. */
static void body(struct hs_job *job)
{
    pid_t launched = getpid();

    if (!job->launched) {
        supervise(job, 0);
        return;
    }
    job->abandoned = true; /* the launcher's collectives do not know who takes the places */
    fflush(NULL);
    pid_t pid = fork();
    if (!HS_INT(pid, >=, 0))
        return;
    if (pid > 0) {
        be_rank(job, 0);
        return;
    }
    while (getppid() == launched)
        hs_sleep_us(500);
    if (!atomic_exchange(&job->shared->killed[job->rank], 0))
        _exit(0);
    supervise(job, 1);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "returns",
        .options = "--rounds --seed --figures --wrong --role --two --stop --strict --once "
                   "--leave --moves --graphs --first --refused",
        .limit_s = 60,
        .n_boots = 1,
        .body = body};
    return hs_main(argc, argv, &test);
}
