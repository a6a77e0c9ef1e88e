/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that come later: a job that has room for one more rank of either role serves without them;
 * two new processes join by a commit of the others, and everybody works with them; they are killed,
 * the others go on without them, and new processes take their places as any lost rank's. Every byte
 * is compared.
 *
 * Beside the first two ranks there is a process without a context that starts the new ones, whoever
 * has started the job: a launcher knows nothing of them. --figures 1: print times. --strict 1: the
 * first use comes in the time that is promised. --moves 1: new processes are on hosts of TEST_HOSTS
 * by their own numbers, and the next life on the next.
 * --wrong 1, where there are plans on streams: before, others ask that would be reached another
 *   way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "grow.h"

enum { LIMIT_S = GROW_LIMIT_S, N_NEW = 2, LIVES = 2, FIRST_USE_MS = 1000 };

static const char secret[] = "of ranks that come later";

void grow_note_first_use(struct rank *rank)
{
    if (rank->began_ns)
        member_ops_note_most(rank->job, STAMP_FIRST_USE + rank->life, hs_now_ns() - rank->began_ns);
    rank->began_ns = 0;
}

static bool work(struct rank *rank, int n)
{
    hs_step("operations");
    bool is_done = grow_work(rank, n);
    rank->n_works++;
    return is_done;
}

static bool meet(struct rank *rank, int n)
{
    rank->met += n;
    atomic_fetch_add(&rank->job->shared->stamp[STAMP_MET], 1);
    return member_ops_await(rank->job, STAMP_MET, rank->met);
}

/* ---- membership ---- */

static bool await_state(const struct rank *rank, int world, stepaf_member_state_t state)
{
    int64_t until_ns = hs_now_ns() + LIMIT_S * 1000000000LL * hs_slow();
    stepaf_member_state_t states[HS_MAX_RANKS] = {0};
    stepaf_members_t members = {.size = sizeof(members)};

    for (;;) {
        if (!HS_OK(stepaf_members_query(rank->job->ctx, &members, states, HS_MAX_RANKS)) ||
            hs_hopeless(rank->job))
            return false;
        if (states[world] == state)
            return true;
        if (hs_now_ns() > until_ns)
            return HS_FAILED("world rank %d is %d, should be %d: %s", world, (int)states[world],
                             (int)state, stepaf_members_reason(rank->job->ctx, world));
        (void)stepaf_progress(rank->job->ctx);
        hs_sleep_us(500);
    }
}

static bool await_new(const struct rank *rank, stepaf_member_state_t state)
{
    bool have_come = true;

    hs_step("the new ranks' state");
    for (int i = 0; i < N_NEW && have_come; i++)
        have_come = await_state(rank, rank->job->size + i, state);
    return have_come;
}

static bool commit(struct rank *rank)
{
    stepaf_commit_params_t params = {.field_mask = STEPAF_COMMIT_LOST | STEPAF_COMMIT_RETURN,
                                     .lost = STEPAF_COMMIT_LEAVE_LOST,
                                     .returning = STEPAF_COMMIT_ADMIT};
    int64_t began_ns = hs_now_ns();

    hs_step("a commit");
    if (!HS_OK(stepaf_commit_with(rank->job->ctx, &params)))
        return false;
    if (rank->life < 0)
        member_ops_note_most(rank->job, STAMP_COMMIT, hs_now_ns() - began_ns);
    return true;
}

/* Barriers and the map are among those who are there. */
static bool look_around(const struct rank *rank, const char *word)
{
    char *text = NULL, name[64];
    bool is_good =
        HS_OK(stepaf_barrier(rank->job->ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT)) &&
        HS_OK(stepaf_map_check(rank->job->ctx, STEPAF_TIMEOUT_DEFAULT, &text));

    snprintf(name, sizeof(name), "(world rank %d) %s", rank->job->size, word);
    if (text && !strstr(text, name))
        HS_FAILED("the map does not say \"%s\":\n%s", name, text);
    free(text);
    return is_good && !hs_failed();
}

/* ---- ranks ---- */

static void take_places(struct hs_job *job)
{
    hs_take_place(job);
    HS_INT(stepaf_size(job->ctx, STEPAF_GROUP_WORLD), ==, job->size + N_NEW);
}

static bool tell_address(const struct rank *rank)
{
    char *place = (char *)&rank->job->shared->stamp[STAMP_ADDRESS], text[1024];
    size_t room = (HS_STAMPS - STAMP_ADDRESS) * sizeof(int64_t);

    if (!HS_OK(stepaf_members_address(rank->job->ctx, text, sizeof(text))))
        return false;
    text[strcspn(text, ",")] = '\0';
    return HS_INT(snprintf(place, room, "%s", text), <, (int)room);
}

/* Those that ask are turned away by a commit that has something else to do. */
static bool turn_away(struct rank *rank, int life)
{
    return await_new(rank, STEPAF_MEMBER_ASKS) &&
           HS_OK(stepaf_key_declare(rank->job->ctx, (uint64_t)(1000 + life), STEPAF_PULL, 64,
                                    NULL)) &&
           commit(rank) && member_ops_await(rank->job, STAMP_VAIN, (life + 1) * N_NEW);
}

/* One life of the new ranks, seen by those that were there before. */
static bool live_with(struct rank *rank, int life)
{
    int size = rank->job->size;

    if (rank->job->rank == 0)
        atomic_store(&rank->job->shared->stamp[STAMP_MAY_COME], life + 1);
    if (hs_option_int(rank->job, "--wrong", 0) && !turn_away(rank, life))
        return false;
    if (!work(rank, size / 2) || !await_new(rank, STEPAF_MEMBER_ASKS))
        return false;
    if (!work(rank, size / 2) || !meet(rank, size) || !commit(rank) ||
        !await_new(rank, STEPAF_MEMBER_IN) || !work(rank, size / 2 + 1))
        return false;
    if (!look_around(rank, life ? "has returned" : "has joined") || !meet(rank, size + N_NEW))
        return false;
    if (life + 1 == LIVES)
        return true;
    /* Before the next ones ask. */
    return await_new(rank, STEPAF_MEMBER_LOST) && commit(rank) &&
           await_new(rank, STEPAF_MEMBER_OUT) && meet(rank, size);
}

static void judge_times(struct hs_job *job)
{
    int64_t new_ns = atomic_load(&job->shared->stamp[STAMP_FIRST_USE]);
    int64_t back_ns = atomic_load(&job->shared->stamp[STAMP_FIRST_USE + 1]);
    /* Tests share the processors with others: there it is only not to be a matter of time-outs. */
    int64_t bound_ms = FIRST_USE_MS * hs_slow() * (hs_option_int(job, "--strict", 0) ? 1 : 10);

    if (hs_option_int(job, "--figures", 0))
        printf("%d ranks, room for %d: from a process's init to its first operation %.1f ms as a "
               "new rank (bound %d), %.1f ms as one that returns; the longest commit %.1f ms\n",
               job->size, N_NEW, (double)new_ns / 1e6, FIRST_USE_MS, (double)back_ns / 1e6,
               (double)atomic_load(&job->shared->stamp[STAMP_COMMIT]) / 1e6);
    HS_INT(new_ns, >, 0);
    HS_INT(new_ns / 1000000, <, bound_ms);
    HS_INT(back_ns / 1000000, <, bound_ms);
}

/* Before the first commit, where only the bootstrap knows who is there. */
static bool meet_uncommitted(struct hs_job *job)
{
    stepaf_group_t own =
        stepaf_role(job->ctx) == STEPAF_FFN ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION;

    hs_step("barriers before the commit");
    return HS_OK(stepaf_barrier(job->ctx, STEPAF_GROUP_WORLD, STEPAF_TIMEOUT_DEFAULT)) &&
           HS_OK(stepaf_barrier(job->ctx, own, STEPAF_TIMEOUT_DEFAULT));
}

static void be_rank(struct hs_job *job)
{
    struct rank rank = {.job = job, .life = -1};
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_SPLIT, .split = job->split};

    job->fds = hs_count_fds();
    grow_begin(&rank);
    hs_step("init");
    if (!HS_OK(hs_init(job, 0, &params, &job->ctx)))
        return;
    take_places(job);
    if ((job->rank == 0 && !tell_address(&rank)) || !meet_uncommitted(job) ||
        !grow_prepare(&rank) || !HS_OK(stepaf_commit(job->ctx)) ||
        !await_new(&rank, STEPAF_MEMBER_OUT) || !look_around(&rank, "has not joined"))
        return;
    for (int life = 0; life < LIVES; life++)
        if (!live_with(&rank, life))
            return;
    if (job->rank == 0)
        judge_times(job);
    grow_end(&rank);
}

/* ---- new ranks ---- */

static stepaf_status_t join(struct rank *rank, int number, const char *its_secret)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_SPLIT, .split = rank->job->split};
    char text[32];

    setenv("STEPAF_JOIN", (const char *)&rank->job->shared->stamp[STAMP_ADDRESS], 1);
    setenv("STEPAF_SECRET", its_secret, 1);
    snprintf(text, sizeof(text), "%d", number);
    setenv("STEPAF_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", rank->job->size);
    setenv("STEPAF_SIZE", text, 1);
    return stepaf_init(NULL, &params, &rank->job->ctx);
}

/* There is no room for it, or it does not know the secret. */
static bool join_in_vain(struct rank *rank)
{
    int size = rank->job->size;

    return HS_REFUSED(join(rank, size + N_NEW, secret), STEPAF_ERR_SETTING) &&
           HS_REFUSED(join(rank, rank->job->rank, "guessed"), STEPAF_ERR_BOOT) &&
           HS_REFUSED(join(rank, rank->job->rank, ""), STEPAF_ERR_SETTING);
}

static bool ask_the_wrong_way(struct rank *rank)
{
    struct hs_job *job = rank->job;

    grow_go_wrong(true);
    bool is_open = HS_OK(join(rank, job->rank, secret));
    grow_go_wrong(false);
    if (!is_open)
        return false;
    take_places(job);
    if (!grow_prepare(rank))
        return false;
    hs_step("to be turned away");
    HS_REFUSED(stepaf_commit(job->ctx), STEPAF_ERR_MISMATCH);
    if (!strstr(stepaf_last_error()->text, rank->life ? "took another path" : "expect a new rank"))
        HS_FAILED("%s", stepaf_last_error()->text);
    stepaf_finalize(job->ctx);
    job->ctx = NULL;
    atomic_fetch_add(&job->shared->stamp[STAMP_VAIN], 1);
    return !hs_failed();
}

static void be_new(struct hs_job *job, int life)
{
    struct rank rank = {.job = job, .life = life};
    int half = job->size / 2;

    job->fds = hs_count_fds();
    if (!member_ops_await(job, STAMP_MAY_COME, life + 1))
        return;
    if (hs_option_int(job, "--moves", 0) &&
        !hs_move_to_host(getenv("TEST_HOSTS"), job->rank + life))
        return;
    grow_begin(&rank);
    if ((!life && !join_in_vain(&rank)) ||
        (hs_option_int(job, "--wrong", 0) && !ask_the_wrong_way(&rank)))
        return;
    rank.began_ns = hs_now_ns();
    hs_step("init, to join");
    if (!HS_OK(join(&rank, job->rank, secret)))
        return;
    take_places(job);
    HS_INT(job->role, ==, job->rank == job->size ? STEPAF_ATTENTION : STEPAF_FFN);
    /* What the others have come to when they work with this one. */
    rank.ops = (int64_t)life * (3 * half + 1) + 2 * half;
    rank.met = (int64_t)life * (3 * job->size + N_NEW) + job->size;
    rank.n_works = life * 3 + 2;
    if (!grow_prepare(&rank) || !commit(&rank) || !work(&rank, half + 1) ||
        !look_around(&rank, "") || !meet(&rank, job->size + N_NEW))
        return;
    if (life + 1 < LIVES)
        raise(SIGKILL);
    grow_end(&rank);
}

/* ---- processes ---- */

static bool run(struct hs_job *job, int life)
{
    int status = 0;
    pid_t parent = getpid(), pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        if (life < 0)
            be_rank(job);
        else
            be_new(job, life);
        fflush(NULL);
        exit(hs_failed() ? 1 : 0);
    }
    if (!HS_INT(pid, >, 0) || !HS_INT(waitpid(pid, &status, 0), ==, pid))
        return false;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && life >= 0 && life + 1 < LIVES)
        return true;
    return WIFEXITED(status) && !WEXITSTATUS(status);
}

/* The process that starts the new rank, one life after the other. */
static void supervise(struct hs_job *job)
{
    job->rank = job->size + job->rank;
    for (int life = 0; life < LIVES; life++)
        if (!run(job, life)) {
            HS_FAILED("new world rank %d has failed", job->rank);
            return;
        }
}

/* Beside one of the first ranks; its process number. */
static pid_t begin_supervisor(struct hs_job *job)
{
    pid_t parent = getpid(), pid;

    fflush(NULL);
    pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    supervise(job);
    fflush(NULL);
    _exit(hs_failed() ? 1 : 0);
}

/* Where a launcher has started the rank, it is that process itself. */
static bool be_started(struct hs_job *job)
{
    if (!job->launched)
        return HS_TRUE(run(job, -1));
    be_rank(job);
    return !hs_failed();
}

static void body(struct hs_job *job)
{
    pid_t pid = 0;
    int status = 0;

    setenv("STEPAF_ROOM_ATTENTION", "1", 1);
    setenv("STEPAF_ROOM_FFN", "1", 1);
    setenv("STEPAF_SECRET", secret, 1);
    if (job->rank < N_NEW && !HS_INT(pid = begin_supervisor(job), >, 0))
        return;
    if (!be_started(job) || !pid)
        return;
    if (HS_INT(waitpid(pid, &status, 0), ==, pid))
        HS_TRUE(WIFEXITED(status) && !WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "grow",
                                        .options = "--figures --strict --moves --wrong",
                                        .limit_s = 60,
                                        .n_boots = 1,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
