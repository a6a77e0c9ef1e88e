/* SPDX-License-Identifier: Apache-2.0 */
/* Commits that go on without lost ranks: ranks die under load, in the middle of a commit, two at
 * once and the one that leads the agreement; the others agree on who is left, and every byte of
 * what they do then is right.
 *
 * Or the network is cut in two: one part goes on, and the other one ends with a status.
 *
 * --cut COMMAND, --mend COMMAND: take the last ranks' network, and give it back; --apart N: how
 *   many these are.
 * --deaths N: ranks that die, one or two a round. --seed N: which, and when. --refuse 1: the commit
 * that is not told to go on is refused first, and changes nothing. --figures 1: print the times.
 * --ops N: operations of those that are left (20); with --deaths 0, of all. --strict 1: times over their bounds are
 * failures.
 * --stops 1: ranks stand still for moments of a commit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "survive.h"

enum { BYTES = 3000, OPS = 20, DRAINS = 20 };

/* ---- operations ---- */

bool survive_ask(struct rank *rank, uint32_t flags, bool *is_lost_p)
{
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS,
                                    .flags = flags | STEPAF_START_WAIT};
    stepaf_request_h request = NULL;
    uint64_t op = member_ops_fill(&rank->exchange);

    stepaf_status_t status = stepaf_start_with(rank->exchange.plan, &params, &request);
    *is_lost_p = status == STEPAF_ERR_PEER_LOST;
    if (*is_lost_p)
        return true;
    if (!HS_OK(status))
        return false;
    status = stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT);
    *is_lost_p = status == STEPAF_ERR_PEER_LOST;
    if (!*is_lost_p && !HS_OK(status))
        return false;
    for (int p = 0; p < rank->job->peers; p++) {
        int f = stepaf_peer_rank(rank->job->ctx, p);
        int64_t until_ns = hs_now_ns() + 10000000000LL * hs_slow();
        while (*is_lost_p && stepaf_request_peer(request, f) == STEPAF_INPROGRESS &&
               hs_now_ns() < until_ns)
            (void)stepaf_progress(rank->job->ctx);
        if (stepaf_request_peer(request, f) == STEPAF_OK &&
            !member_ops_verify(&rank->exchange, p, op))
            return false;
    }
    return true;
}

void survive_serve(struct rank *rank, int stamp, int64_t until)
{
    int64_t give_up_ns = hs_now_ns() + 30000000000LL * hs_slow();

    while (!hs_failed() && !hs_hopeless(rank->job) && hs_now_ns() < give_up_ns &&
           atomic_load(&rank->job->shared->stamp[stamp]) < until)
        (void)member_ops_serve(&rank->exchange, 2000);
    while (!hs_failed() && member_ops_serve(&rank->exchange, 0))
        ;
}

/* Attention ranks, until the victims are dead and each that is a peer has been named. */
static void load_until_named(struct rank *rank)
{
    int ffn_victims = 0;
    bool is_lost = false, named = false;

    for (int i = 0; i < rank->n_victims; i++)
        ffn_victims += member_ops_is_peer(rank->job, rank->victims[i]);
    while (!hs_failed() && !hs_hopeless(rank->job)) {
        if (!survive_ask(rank, named ? STEPAF_START_SKIP_LOST : 0, &is_lost))
            return;
        if (is_lost && !named) {
            named = true;
            member_ops_note_most(rank->job, STAMP_NAMED,
                                 hs_now_ns() - atomic_load(&rank->job->shared->stamp[0]));
        }
        if (survive_all_killed(rank) && (named || !ffn_victims))
            return;
    }
}

static void under_load(struct rank *rank)
{
    hs_step("load");
    survive_begin_killing(rank);
    if (rank->job->role == STEPAF_ATTENTION) {
        load_until_named(rank);
        if (!survive_is_victim(rank,
                               rank->job->rank)) /* which may hear of its death before it dies */
            atomic_fetch_add(&rank->job->shared->stamp[STAMP_QUIET], 1);
    } else {
        int left = survive_count_alive(rank, STEPAF_ATTENTION);
        for (int i = 0; i < rank->n_victims; i++)
            left -= survive_role_of(rank, rank->victims[i]) == STEPAF_ATTENTION;
        survive_serve(rank, STAMP_QUIET, left);
    }
    survive_end_killing(rank);
}

/* ---- commits ---- */

const stepaf_commit_params_t survive_go_on = {.field_mask = STEPAF_COMMIT_LOST,
                                              .lost = STEPAF_COMMIT_LEAVE_LOST};

bool survive_commit_on(struct rank *rank)
{
    stepaf_status_t status = STEPAF_OK;

    for (int tries = 0; tries < DRAINS; tries++) {
        int64_t began_ns = hs_now_ns();
        status = stepaf_commit_with(rank->job->ctx, &survive_go_on);
        if (!status)
            member_ops_note_most(rank->job, STAMP_COMMIT, hs_now_ns() - began_ns);
        if (status != STEPAF_ERR_STATE)
            break;
        while (rank->job->role == STEPAF_FFN && member_ops_serve(&rank->exchange, 1000))
            ;
    }
    return HS_OK(status) && HS_INT(stepaf_epoch(rank->job->ctx), ==, ++rank->epoch);
}

void survive_compare_lists(struct rank *rank)
{
    stepaf_member_state_t states[HS_MAX_RANKS];
    stepaf_members_t members = {.size = sizeof(members)};
    uint64_t list = 0;

    if (!HS_OK(stepaf_members_query(rank->job->ctx, &members, states, HS_MAX_RANKS)))
        return;
    HS_INT(members.epoch, ==, rank->epoch);
    HS_INT(members.n_in + members.n_lost + members.n_out, ==, rank->job->size);
    for (int r = 0; r < rank->job->size; r++) {
        list |= (uint64_t)(states[r] == STEPAF_MEMBER_OUT) << r;
        if (!rank->is_dead[r])
            HS_TRUE(states[r] == STEPAF_MEMBER_IN || states[r] == STEPAF_MEMBER_SLOW);
        else
            HS_TRUE(states[r] == STEPAF_MEMBER_LOST || states[r] == STEPAF_MEMBER_OUT ||
                    rank->in_commit);
        if (states[r] == STEPAF_MEMBER_OUT)
            HS_TRUE(rank->is_dead[r] && stepaf_members_reason(rank->job->ctx, r)[0]);
    }
    int64_t none = 0, own = (int64_t)list + 1;
    if (!atomic_compare_exchange_strong(&rank->job->shared->stamp[STAMP_LIST], &none, own))
        HS_INT(none, ==, own);
}

/* A victim has done its part: it is to be killed, but never leaves by itself. */
static void wait_for_death(void)
{
    for (;;)
        pause();
}

bool survive_declare_more(struct rank *rank, int round)
{
    return HS_OK(stepaf_key_declare(rank->job->ctx, (uint64_t)SURVIVE_LATER + (uint64_t)round,
                                    STEPAF_PULL, 64, NULL));
}

static void refuse_once(struct rank *rank)
{
    stepaf_commit_params_t wrong = {.field_mask = 1 << 7}, strange = {STEPAF_COMMIT_LOST, 9, 0, 0},
                           stranger = {STEPAF_COMMIT_RETURN, 0, 9, 0},
                           leaver = {STEPAF_COMMIT_LEAVING, 0, 0, 2};

    HS_REFUSED(stepaf_commit_with(rank->job->ctx, &wrong), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_commit_with(rank->job->ctx, &strange), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_commit_with(rank->job->ctx, &stranger), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_commit_with(rank->job->ctx, &leaver), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_commit(rank->job->ctx), STEPAF_ERR_PEER_LOST);
    HS_TRUE(strstr(stepaf_last_error()->text, "STEPAF_COMMIT_LEAVE_LOST") != NULL);
    HS_INT(stepaf_epoch(rank->job->ctx), ==, rank->epoch);
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

bool survive_work(struct rank *rank)
{
    int n = (int)hs_option_int(rank->job, "--ops", OPS);
    bool is_lost = false;

    hs_step("operations");
    if (rank->job->role == STEPAF_FFN) {
        survive_serve(rank, STAMP_OPS, survive_count_alive(rank, STEPAF_ATTENTION));
        return !hs_failed();
    }
    int64_t *took_ns = calloc((size_t)n, sizeof(*took_ns));
    bool good = HS_TRUE(took_ns != NULL) && survive_lost_targets(rank, false);
    for (int i = 0; good && i < n; i++) {
        int64_t began_ns = hs_now_ns();
        good = survive_ask(rank, rank->in_commit ? STEPAF_START_SKIP_LOST : 0, &is_lost) &&
               HS_TRUE(!is_lost || rank->in_commit);
        took_ns[i] = hs_now_ns() - began_ns;
    }
    if (good) {
        qsort(took_ns, (size_t)n, sizeof(*took_ns), compare_times);
        rank->median_ns = took_ns[n / 2];
    }
    free(took_ns);
    if (!good || !survive_lost_targets(rank, true))
        return false;
    atomic_fetch_add(&rank->job->shared->stamp[STAMP_OPS], 1);
    return true;
}

bool survive_reset_stamps(struct rank *rank)
{
    if (!hs_pause(rank->job))
        return false;
    if (rank->job->rank == survive_first_left(rank))
        for (int i = STAMP_QUIET; i < HS_STAMPS; i++)
            if (i != STAMP_NAMED && i != STAMP_COMMIT)
                atomic_store(&rank->job->shared->stamp[i], 0);
    return hs_pause(rank->job);
}

/* The descriptor and the callback have told of this round's loss. */
static void hear_of_it(struct rank *rank)
{
    uint64_t n = 0;

    (void)stepaf_progress(rank->job->ctx);
    HS_INT(read(rank->fd, &n, sizeof(n)), ==, sizeof(n));
    HS_INT(n, >, 0);
    HS_INT(read(rank->fd, &n, sizeof(n)), ==, -1); /* once for all that has been */
    int64_t give_up_ns = hs_now_ns() + 5000000000LL * hs_slow();
    while (!atomic_load(&rank->n_calls) && hs_now_ns() < give_up_ns)
        hs_yield(); /* the progress thread is about to call it */
    HS_INT(atomic_exchange(&rank->n_calls, 0), >, 0);
}

static bool do_round(struct rank *rank, int round, int most, bool refuses)
{
    if (round == 0 && hs_option_int(rank->job, "--figures", 0))
        survive_choose_last(rank);
    else
        survive_choose_victims(rank, most);
    if (!survive_reset_stamps(rank))
        return false;
    bool dies = survive_is_victim(rank, rank->job->rank);
    for (int i = 0; i < rank->n_victims && rank->in_commit; i++)
        hs_doom(rank->job, rank->victims[i]);
    if (!rank->in_commit)
        under_load(rank);
    if (dies && !rank->in_commit)
        wait_for_death();
    if (!survive_declare_more(rank, round))
        return false;
    hs_step("commit");
    if (rank->in_commit) {
        atomic_fetch_add(&rank->job->shared->stamp[STAMP_ENTERED], 1);
        survive_begin_killing(rank);
        if (dies) {
            (void)stepaf_commit_with(rank->job->ctx, &survive_go_on);
            wait_for_death();
        }
    } else if (refuses) {
        refuse_once(rank);
    }
    if (!survive_commit_on(rank))
        return false;
    if (rank->in_commit) {
        survive_end_killing(rank);
        /* Who was lost behind the verdict is left by the next. */
        if (!hs_pause(rank->job) || !survive_declare_more(rank, SURVIVE_LATER + round) ||
            !survive_commit_on(rank))
            return false;
    }
    for (int i = 0; i < rank->n_victims; i++)
        rank->is_dead[rank->victims[i]] = true;
    rank->n_victims = 0;
    survive_compare_lists(rank);
    hear_of_it(rank);
    if (!hs_pause(rank->job) || !survive_work(rank))
        return false;
    return hs_pause(rank->job);
}

static void count_call(stepaf_context_h ctx, void *arg)
{
    struct rank *rank = arg;
    stepaf_members_t members = {.size = sizeof(members)};

    stepaf_status_t status = stepaf_members_query(ctx, &members, NULL, 0);
    if (status == STEPAF_ERR_HANDLE && atomic_load(&rank->closes))
        return; /* others have finalized, and so does this one meanwhile */
    HS_OK(status);
    HS_INT(members.n_lost + members.n_out, >, 0);
    atomic_fetch_add(&rank->n_calls, 1);
}

/* The most that anybody has seen; the first of the ranks that are left says it. */
static void say_times(struct hs_job *job)
{
    const int64_t named_ns = atomic_load(&job->shared->stamp[STAMP_NAMED]);
    const int64_t commit_ns = atomic_load(&job->shared->stamp[STAMP_COMMIT]);
    const int64_t named_most_ms = 100, commit_most_ms = job->size <= 4 ? 50 : 1000;

    printf("of %d ranks, %lld lost: named after %.1f ms at most (bound %" PRId64
           " on the node), commit without them %.1f ms at most (bound %" PRId64 ")\n",
           job->size, hs_option_int(job, "--deaths", 1), (double)named_ns / 1e6, named_most_ms,
           (double)commit_ns / 1e6, commit_most_ms);
    if (hs_option_int(job, "--strict", 0)) {
        HS_INT(named_ns, <=, named_most_ms * 1000000);
        HS_INT(commit_ns, <=, commit_most_ms * 1000000);
    }
}

static void body(struct hs_job *job)
{
    struct rank rank = {.job = job,
                        .exchange = {.job = job,
                                     .bytes = (size_t)hs_option_int(job, "--bytes", BYTES),
                                     .may_lose = true}};
    int deaths = (int)hs_option_int(job, "--deaths", 1);
    bool refuses = hs_option_int(job, "--refuse", 0), figures = hs_option_int(job, "--figures", 0);

    rank.dice = (uint64_t)hs_option_int(job, "--seed", 1);
    if (!hs_open(job) || !member_ops_prepare(&rank.exchange) || !HS_OK(stepaf_commit(job->ctx)))
        return;
    rank.epoch = 1;
    rank.fd = stepaf_members_fd(job->ctx);
    HS_INT(rank.fd, >=, 0);
    HS_INT(stepaf_members_fd(job->ctx), ==, rank.fd);
    HS_OK(stepaf_members_set_callback(job->ctx, count_call, &rank));
    if (hs_option_int(job, "--slow", 0)) {
        survive_be_slow(&rank);
        if (hs_pause(job))
            hs_close(job);
        return;
    }
    if (hs_option_text(job, "--cut", NULL)) {
        survive_cut_in_two(&rank);
        return;
    }
    for (int round = 0; deaths > 0 && !hs_failed(); round++) {
        int n = 0;
        if (!do_round(&rank, round, deaths > 2 ? 2 : deaths, refuses))
            break;
        for (int r = 0; r < job->size; r++)
            n += rank.is_dead[r];
        deaths = (int)hs_option_int(job, "--deaths", 1) - n;
    }
    if (!hs_option_int(job, "--deaths", 1) &&
        (!hs_pause(job) || !survive_work(&rank) || !hs_pause(job)))
        return;
    if (figures && job->rank == survive_first_left(&rank))
        printf("of %d ranks, %lld lost: an operation of those that are left takes %.1f us (p50)\n",
               job->size, hs_option_int(job, "--deaths", 1), (double)rank.median_ns / 1e3);
    figures = figures && hs_option_int(job, "--deaths", 1);
    if (figures && job->rank == survive_first_left(&rank)) {
        HS_INT(atomic_load(&job->shared->stamp[STAMP_NAMED]), >, 0);
        HS_INT(atomic_load(&job->shared->stamp[STAMP_COMMIT]), >, 0);
    }
    if (figures && !hs_failed() && job->rank == survive_first_left(&rank))
        say_times(job);
    if (hs_failed() || !hs_pause(job))
        return;
    atomic_store(&rank.closes, true);
    hs_close(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "survive",
        .options = "--deaths --seed --refuse --figures --bytes --cut --mend "
                   "--apart --slow --stops --ops --strict",
        .limit_s = 60,
        .n_boots = 1,
        .body = body};
    return hs_main(argc, argv, &test);
}
