/* SPDX-License-Identifier: Apache-2.0 */
/* Two killed ranks return as new processes by one commit, and one of these stops before the commit
 * is over, as a process does that hangs or whose host is gone. The others lose that one alone: the
 * other new process is in after the same commit, and works with them. Then the stopped process is
 * killed, a third one takes its place, and everybody works. Every byte is compared.
 *
 * --dead A,B: the world ranks that are killed. --halts A: the one whose next process stops.
 * --at asks: it stops while it waits to be admitted; agreed: once links are agreed on; ready: once it
 * has told a peer that it is ready; clock: while clocks are compared; apart: nobody stops, but the two
 * cannot connect to each other, and the others lose both. --own S: the seconds that the
 * commits of the returning processes have; the others have STEPAF_COMMIT_TIMEOUT_US. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "halts.h"
#include "returns.h"

enum { STAMP_MEETINGS = 8, STAMP_WORKS = 20, N_DEAD = 2, OPS = 4, APART_LIMIT_S = 8 };

/* What the job is to do, by the command line. */
struct plan {
    int dead[N_DEAD], halts;
    const char *at;
    int64_t own_s; /* 0: as the others */
};

static struct plan read_plan(const struct hs_job *job)
{
    struct plan plan = {.at = hs_option_text(job, "--at", "asks"),
                        .halts = (int)hs_option_int(job, "--halts", 0),
                        .own_s = hs_option_int(job, "--own", 0)};
    const char *dead = hs_option_text(job, "--dead", "0,1");

    if (sscanf(dead, "%d,%d", &plan.dead[0], &plan.dead[1]) != N_DEAD)
        HS_FAILED("--dead %s", dead);
    return plan;
}

/* The line of its log at which a process stops; NULL: a signal stops it. */
static const char *line_of(const struct plan *plan)
{
    static const char *const lines[][2] = {
        {"agreed", "is connected by"}, {"ready", ": READY"}, {"clock", ": PING"}};

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!strcmp(plan->at, lines[i][0]))
            return lines[i][1];
    return NULL;
}

static bool is_apart(const struct plan *plan)
{
    return !strcmp(plan->at, "apart");
}

static bool is_dead(const struct plan *plan, int world)
{
    return plan->dead[0] == world || plan->dead[1] == world;
}

/* Whether this rank does what one of the survivors must do. */
static bool is_first(const struct rank *rank, const struct plan *plan)
{
    int first = 0;

    while (is_dead(plan, first))
        first++;
    return rank->job->rank == first;
}

/* Wait until @a n ranks have come to this meeting. */
static bool meet(const struct rank *rank, int meeting, int n)
{
    atomic_fetch_add(&rank->job->shared->stamp[STAMP_MEETINGS + meeting], 1);
    return member_ops_await(rank->job, STAMP_MEETINGS + meeting, n);
}

/* ---- operations ---- */

static bool ask(struct rank *rank, int n_answers)
{
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS,
                                    .flags = STEPAF_START_SKIP_LOST | STEPAF_START_WAIT};
    stepaf_request_h request = NULL;
    uint64_t op = member_ops_fill(&rank->exchange);

    if (!HS_OK(stepaf_start_with(rank->exchange.plan, &params, &request)))
        return false;
    stepaf_status_t status = stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT);
    if (status != STEPAF_ERR_PEER_LOST && !HS_OK(status))
        return false;
    return HS_INT(member_ops_count(&rank->exchange, request, op), ==, n_answers);
}

/* All work whom @a lost is none of; -1: all. */
static bool work(struct rank *rank, int number, int lost)
{
    struct hs_job *job = rank->job;
    int n_attn = job->attn - (lost >= 0 && lost < job->attn),
        n_ffn = job->ffn - (lost >= job->attn);
    int64_t until_ns = hs_now_ns() + RETURNS_LIMIT_S * 1000000000LL * hs_slow();
    _Atomic int64_t *n_through = &job->shared->stamp[STAMP_WORKS + number];

    hs_step("operations");
    for (int i = 0; job->role == STEPAF_ATTENTION && i < OPS; i++)
        if (!ask(rank, n_ffn))
            return false;
    if (job->role == STEPAF_ATTENTION)
        atomic_fetch_add(n_through, 1);
    while (job->role == STEPAF_FFN && atomic_load(n_through) < n_attn) {
        (void)member_ops_serve(&rank->exchange, 2000);
        if (hs_failed() || hs_hopeless(job))
            return false;
        if (hs_now_ns() > until_ns)
            return HS_FAILED("not all operations have come");
    }
    return !hs_failed();
}

/* ---- ranks ---- */

/* All but @a lost are members; -1: all are. Ranks that do not wait for it hear that it has stopped in
 * their next commit, unless it is lost by the agreement of all. */
static bool look_at_states(const struct rank *rank, const struct plan *plan, int lost)
{
    for (int r = 0; r < rank->job->size; r++) {
        stepaf_member_state_t state = returns_state_of(rank, r);
        bool is_in = state == STEPAF_MEMBER_IN || state == STEPAF_MEMBER_SLOW;
        if (r == lost && line_of(plan))
            continue;
        if (is_in != (r != lost))
            HS_FAILED("world rank %d is %d, and %d has stopped: %s", r, (int)state, lost,
                      stepaf_members_reason(rank->job->ctx, r));
    }
    return !hs_failed();
}

/* The survivors lose two ranks, and two processes ask for their places. */
static bool lose_two(struct rank *rank, const struct plan *plan)
{
    struct hs_job *job = rank->job;
    int left = job->size - N_DEAD;

    if (is_first(rank, plan)) {
        if (!returns_tell_address(rank))
            return false;
        for (int i = 0; i < N_DEAD; i++)
            hs_signal(job, plan->dead[i], SIGKILL);
    }
    if (!meet(rank, 1, left) || !returns_commit(rank, STEPAF_COMMIT_KEEP_OUT) ||
        !returns_await_state(rank, plan->dead[0], STEPAF_MEMBER_ASKS) ||
        !returns_await_state(rank, plan->dead[1], STEPAF_MEMBER_ASKS) || !meet(rank, 2, left))
        return false;
    if (is_first(rank, plan) && !strcmp(plan->at, "asks"))
        hs_signal(job, plan->halts, SIGSTOP);
    return meet(rank, 3, left);
}

/* What all do but the one that has stopped, until the next process asks for its place. */
static bool go_on_without(struct rank *rank, const struct plan *plan)
{
    int left = rank->job->size - 1;

    if (!look_at_states(rank, plan, plan->halts) || !work(rank, 1, plan->halts) ||
        !meet(rank, 4, left))
        return false;
    if (is_first(rank, plan))
        hs_signal(rank->job, plan->halts, SIGKILL);
    return returns_await_state(rank, plan->halts, STEPAF_MEMBER_ASKS) && meet(rank, 5, left);
}

/* The two that could not connect to each other are lost, well before the deadline of the commit, and
 * their next processes ask. */
static bool go_on_without_both(struct rank *rank, const struct plan *plan)
{
    int64_t most_ns = atomic_load(&rank->job->shared->stamp[STAMP_COMMIT]);

    if (most_ns > APART_LIMIT_S * 1000000000LL * hs_slow())
        return HS_FAILED("the commit has taken %lld ms", (long long)most_ns / 1000000);
    for (int i = 0; i < N_DEAD; i++) {
        stepaf_member_state_t state = returns_state_of(rank, plan->dead[i]);
        if (state == STEPAF_MEMBER_IN || state == STEPAF_MEMBER_SLOW)
            return HS_FAILED("world rank %d is %d", plan->dead[i], (int)state);
    }
    return returns_await_state(rank, plan->dead[0], STEPAF_MEMBER_ASKS) &&
           returns_await_state(rank, plan->dead[1], STEPAF_MEMBER_ASKS) &&
           meet(rank, 5, rank->job->size - N_DEAD);
}

static bool live(struct rank *rank, const struct plan *plan, int life)
{
    int size = rank->job->size;

    if (life == 0) {
        if (!work(rank, 0, -1) || !meet(rank, 0, size))
            return false;
        while (is_dead(plan, rank->job->rank))
            pause();
        if (!lose_two(rank, plan))
            return false;
    }
    if (life < 2) {
        if (!returns_commit(rank, STEPAF_COMMIT_ADMIT))
            return false;
        rank->epoch = stepaf_epoch(rank->job->ctx);
        rank->is_new = false;
        if (!(is_apart(plan) ? go_on_without_both : go_on_without)(rank, plan))
            return false;
    }
    return returns_commit(rank, STEPAF_COMMIT_ADMIT) && look_at_states(rank, plan, -1) &&
           work(rank, 2, -1) && meet(rank, 6, size);
}

/* Stop at the line that is waited for. */
static void halt_at(stepaf_log_level_t level, const char *file, int line, const char *message,
                    void *arg)
{
    (void)level, (void)file, (void)line;
    if (strstr(message, arg))
        raise(SIGSTOP);
}

static void be_rank(struct hs_job *job, int life)
{
    struct plan plan = read_plan(job);
    struct rank rank = {.job = job,
                        .exchange = {.job = job, .bytes = RETURNS_BYTES},
                        .is_new = life > 0,
                        .epoch = 1};
    char own_us[32];
    bool is_open;

    snprintf(own_us, sizeof(own_us), "%lld", (long long)plan.own_s * 1000000);
    if (life && plan.own_s)
        setenv("STEPAF_COMMIT_TIMEOUT_US", own_us, 1);
    if (life == 1 && job->rank == plan.halts && line_of(&plan)) {
        setenv("STEPAF_LOG_LEVEL", "trace", 1);
        stepaf_log_set_callback(halt_at, (void *)(uintptr_t)line_of(&plan));
    }
    if (life == 1 && is_apart(&plan))
        halts_be_apart();
    setenv("STEPAF_SECRET", returns_secret, 1);
    if (life == 0) {
        is_open = hs_open(job);
    } else {
        job->fds = hs_count_fds();
        is_open = HS_OK(returns_init_back(&rank, returns_secret, job->rank, 60000000, &job->ctx));
    }
    if (!is_open)
        return;
    hs_take_place(job);
    rank.exchange.n_ops = (uint64_t)life * 1000000;
    if (!member_ops_prepare(&rank.exchange) || (!life && !HS_OK(stepaf_commit(job->ctx))))
        return;
    if (life == 1 && is_apart(&plan)) {
        HS_REFUSED(stepaf_commit(job->ctx), STEPAF_ERR_PEER_LOST);
        stepaf_finalize(job->ctx);
        fflush(NULL);
        _exit(hs_failed() ? 1 : RETURNS_HAS_LEFT);
    }
    if (live(&rank, &plan, life))
        hs_close(job);
    else if (job->rank != plan.halts) /* who has stopped would keep the job from its end */
        (void)kill((pid_t)atomic_load(&job->shared->pid[plan.halts]), SIGKILL);
}

/* Start the rank's process, and again whenever it is killed. */
static void body(struct hs_job *job)
{
    for (int life = 0;; life++) {
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

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "halts",
                                        .options = "--dead --halts --at --own",
                                        .limit_s = 60,
                                        .n_boots = 1,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
