/* SPDX-License-Identifier: Apache-2.0 */
/* Commits that go on without lost ranks: ranks die under load, in the middle of a commit, two at once and the one
 * that leads the agreement; the others agree on who is left, and every byte of what they do then is right.
 *
 * Or the network is cut in two: one part goes on, and the other one ends with a status.
 *
 * --cut COMMAND, --mend COMMAND: take the last ranks' network, and give it back; --apart N: how many these are.
 * --deaths N: ranks that die, one or two a round. --seed N: which, and when. --refuse 1: the commit that is not
 * told to go on is refused first, and changes nothing. --figures 1: print the times. --stops 1: ranks stand still
 * for moments of a commit. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

enum {
    PUSH = 1,
    PULL = 2,
    LATER = 100, /* keys of later rounds */
    BYTES = 3000,
    OPS = 20,
    LOAD_US = 4000,   /* until somebody dies under load, at most */
    MOMENT_US = 8000, /* until somebody dies after the others have entered the commit, at most */
    DRAINS = 20,
    STOPS = 50,
    STOPPED_US = 500,
    GOING_US = 100,
    HEAD = 16
};

/* Places in the shared page; 0 is the time of the last death. */
enum { STAMP_QUIET = 1, STAMP_NAMED, STAMP_COMMIT, STAMP_OPS, STAMP_LIST, STAMP_ENTERED };

struct rank {
    struct hs_job *job;
    int64_t bytes;
    unsigned char *source, *target;
    stepaf_plan_h plan;
    uint64_t n_ops; /* of this attention rank */
    uint32_t epoch;
    bool is_dead[HS_MAX_RANKS]; /* by world rank: it has been chosen in a round up to this one */
    int victims[2], n_victims;  /* of this round */
    bool in_commit;             /* they die there, else under load */
    int64_t delay_us;
    uint64_t dice;
    int fd;              /* tells of losses */
    _Atomic int n_calls; /* so does the callback */
    _Atomic bool closes; /* it is about to finalize */
};

static uint64_t roll(struct rank *rank, uint64_t sides)
{
    rank->dice = hs_mix(rank->dice + 1);
    return rank->dice % sides;
}

static int role_of(const struct rank *rank, int world)
{
    for (int r = 0; r < rank->job->ffn; r++)
        if (stepaf_world_rank(rank->job->ctx, STEPAF_GROUP_FFN, r) == world)
            return STEPAF_FFN;
    return STEPAF_ATTENTION;
}

/* Whether it is an FFN rank that this attention rank has as a peer. */
static bool is_ffn_peer(const struct rank *rank, int world)
{
    for (int p = 0; p < rank->job->peers; p++)
        if (stepaf_world_rank(rank->job->ctx, STEPAF_GROUP_FFN,
                              stepaf_peer_rank(rank->job->ctx, p)) == world)
            return true;
    return false;
}

static int count_alive(const struct rank *rank, int role)
{
    int n = 0;

    for (int r = 0; r < rank->job->size; r++)
        n += !rank->is_dead[r] && role_of(rank, r) == role;
    return n;
}

static bool is_victim(const struct rank *rank, int world)
{
    for (int i = 0; i < rank->n_victims; i++)
        if (rank->victims[i] == world)
            return true;
    return false;
}

/* The first that will still be there after this round. */
static int first_left(const struct rank *rank)
{
    int r = 0;

    while (rank->is_dead[r] || is_victim(rank, r))
        r++;
    return r;
}

/* All ranks choose the same: nobody whose role would be empty then, and never half of those that are left. */
static void choose_victims(struct rank *rank, int most)
{
    int alive = 0, wanted;

    for (int r = 0; r < rank->job->size; r++)
        alive += !rank->is_dead[r];
    wanted = 1 + (int)roll(rank, 2);
    if (wanted > most)
        wanted = most;
    while (wanted > 1 && 2 * wanted >= alive - 1)
        wanted--;
    rank->n_victims = 0;
    for (int tries = 0; rank->n_victims < wanted && tries < 1000; tries++) {
        int victim = roll(rank, 4) ? (int)roll(rank, (uint64_t)rank->job->size) : first_left(rank);
        int role = role_of(rank, victim), same = 0;
        for (int i = 0; i < rank->n_victims; i++)
            same += role_of(rank, rank->victims[i]) == role;
        if (rank->is_dead[victim] || is_victim(rank, victim) || count_alive(rank, role) - same < 2)
            continue;
        rank->victims[rank->n_victims++] = victim;
    }
    rank->in_commit = roll(rank, 2);
    rank->delay_us = (int64_t)roll(rank, rank->in_commit ? MOMENT_US : LOAD_US);
}

/* For --figures, in the first round: the last FFN rank, under load, so that both times are there. */
static void choose_last(struct rank *rank)
{
    rank->victims[0] = rank->job->size - 1;
    rank->n_victims = 1;
    rank->in_commit = false;
    rank->delay_us = LOAD_US;
    HS_INT(role_of(rank, rank->victims[0]), ==, STEPAF_FFN);
}

/* ---- operations ---- */

static uint64_t stream_of(int attention, uint64_t op, int ffn)
{
    return hs_mix((uint64_t)attention * 1000003 + op) + (uint64_t)ffn * 77;
}

static void write_head(unsigned char *place, int attention, uint64_t op)
{
    uint64_t words[2] = {(uint64_t)attention, op};

    memcpy(place, words, HEAD);
}

/* One operation; whether some peer was lost by it. The answers of all others are right. */
static bool ask(struct rank *rank, uint32_t flags, bool *is_lost_p)
{
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS,
                                    .flags = flags | STEPAF_START_WAIT};
    size_t bytes = (size_t)rank->bytes;
    stepaf_request_h request = NULL;
    uint64_t op = rank->n_ops++;

    write_head(rank->source, rank->job->index, op);
    hs_fill(rank->source + HEAD, bytes - HEAD, stream_of(rank->job->index, op, 99));
    stepaf_status_t status = stepaf_start_with(rank->plan, &params, &request);
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
            !hs_verify("an answer", rank->target + (size_t)p * bytes, bytes,
                       stream_of(rank->job->index, op, f)))
            return false;
    }
    return true;
}

static bool answer_batch(struct rank *rank, stepaf_batch_h batch)
{
    stepaf_tensor_info_t in = {.size = sizeof(in)};
    size_t bytes = (size_t)rank->bytes;
    stepaf_tensor_t tensor = {PULL, rank->source, bytes};
    stepaf_request_h request = NULL;
    uint64_t words[2];

    if (!HS_OK(stepaf_batch_tensor(batch, 0, &in)) || !HS_INT(in.bytes, ==, bytes))
        return false;
    memcpy(words, in.data, HEAD);
    if (!hs_verify("a push", (unsigned char *)in.data + HEAD, bytes - HEAD,
                   stream_of((int)words[0], words[1], 99)))
        return false;
    hs_fill(rank->source, bytes, stream_of((int)words[0], words[1], rank->job->index));
    stepaf_status_t status = stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, &request);
    if (!status)
        status = stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT);
    if (status == STEPAF_ERR_PEER_LOST) /* it asked, and died */
        (void)stepaf_release(batch);
    else
        HS_OK(status);
    return !hs_failed();
}

static bool serve_some(struct rank *rank, int64_t timeout_us)
{
    stepaf_batch_h batches[HS_MAX_RANKS];
    int n = 0;
    stepaf_status_t status =
        stepaf_recv(rank->job->ctx, STEPAF_FROM_ANY, 0, timeout_us, batches, HS_MAX_RANKS, &n);

    if (status == STEPAF_ERR_TIMEOUT || status == STEPAF_ERR_PEER_LOST)
        return false;
    if (!HS_OK(status))
        return false;
    for (int i = 0; i < n; i++)
        if (!answer_batch(rank, batches[i]))
            return false;
    return true;
}

/* Serve until all attention ranks that are left have said that they are through. */
static void serve(struct rank *rank, int stamp, int64_t until)
{
    int64_t give_up_ns = hs_now_ns() + 30000000000LL * hs_slow();

    while (!hs_failed() && !hs_hopeless(rank->job) && hs_now_ns() < give_up_ns &&
           atomic_load(&rank->job->shared->stamp[stamp]) < until)
        (void)serve_some(rank, 2000);
    while (!hs_failed() && serve_some(rank, 0))
        ;
}

/* ---- deaths ---- */

static struct {
    struct rank *rank;
    pthread_t thread;
} killer;

/* Have the last FFN rank that is left stand still for moments, so that others are ahead of it: what they have decided,
 * and what they say in the next epoch, comes to it at once. */
static void hold_up(const struct rank *rank)
{
    int r = rank->job->size - 1;

    while (rank->is_dead[r] || is_victim(rank, r))
        r--;
    for (int i = 0; i < STOPS && role_of(rank, r) == STEPAF_FFN; i++) {
        hs_signal(rank->job, r, SIGSTOP);
        hs_sleep_us(STOPPED_US);
        hs_signal(rank->job, r, SIGCONT);
        hs_sleep_us(GOING_US);
    }
}

static void *kill_victims(void *arg)
{
    struct rank *rank = arg;

    hs_sleep_us(rank->delay_us);
    for (int i = 0; i < rank->n_victims; i++) {
        hs_doom(rank->job, rank->victims[i]);
        hs_signal(rank->job, rank->victims[i], SIGKILL);
    }
    if (rank->in_commit && hs_option_int(rank->job, "--stops", 0))
        hold_up(rank);
    return NULL;
}

static void begin_killing(struct rank *rank)
{
    if (rank->job->rank != first_left(rank))
        return;
    killer.rank = rank;
    HS_INT(pthread_create(&killer.thread, NULL, kill_victims, rank), ==, 0);
}

static void end_killing(const struct rank *rank)
{
    if (rank->job->rank == first_left(rank))
        pthread_join(killer.thread, NULL);
}

static bool all_killed(const struct rank *rank)
{
    for (int i = 0; i < rank->n_victims; i++)
        if (!atomic_load(&rank->job->shared->killed[rank->victims[i]]))
            return false;
    return true;
}

static void note_most(struct rank *rank, int stamp, int64_t ns)
{
    _Atomic int64_t *place = &rank->job->shared->stamp[stamp];
    int64_t most = atomic_load(place);

    while (most < ns && !atomic_compare_exchange_weak(place, &most, ns))
        ;
}

/* Attention ranks, until the victims are dead and each that is a peer has been named. */
static void load_until_named(struct rank *rank)
{
    int ffn_victims = 0;
    bool is_lost = false, named = false;

    for (int i = 0; i < rank->n_victims; i++)
        ffn_victims += is_ffn_peer(rank, rank->victims[i]);
    while (!hs_failed() && !hs_hopeless(rank->job)) {
        if (!ask(rank, named ? STEPAF_START_SKIP_LOST : 0, &is_lost))
            return;
        if (is_lost && !named) {
            named = true;
            note_most(rank, STAMP_NAMED, hs_now_ns() - atomic_load(&rank->job->shared->stamp[0]));
        }
        if (all_killed(rank) && (named || !ffn_victims))
            return;
    }
}

static void under_load(struct rank *rank, int round)
{
    hs_step("load");
    begin_killing(rank);
    if (rank->job->role == STEPAF_ATTENTION) {
        load_until_named(rank);
        if (!is_victim(rank, rank->job->rank)) /* which may hear of its death before it dies */
            atomic_fetch_add(&rank->job->shared->stamp[STAMP_QUIET], 1);
    } else {
        int left = count_alive(rank, STEPAF_ATTENTION);
        for (int i = 0; i < rank->n_victims; i++)
            left -= role_of(rank, rank->victims[i]) == STEPAF_ATTENTION;
        (void)round;
        serve(rank, STAMP_QUIET, left);
    }
    end_killing(rank);
}

/* ---- commits ---- */

static const stepaf_commit_params_t go_on = {.field_mask = STEPAF_COMMIT_LOST,
                                             .lost = STEPAF_COMMIT_LEAVE_LOST};

/* A commit that goes on; a batch of a dead rank may still lie where it is to be released first. */
static bool commit_on(struct rank *rank)
{
    stepaf_status_t status = STEPAF_OK;

    for (int tries = 0; tries < DRAINS; tries++) {
        int64_t began_ns = hs_now_ns();
        status = stepaf_commit_with(rank->job->ctx, &go_on);
        if (!status)
            note_most(rank, STAMP_COMMIT, hs_now_ns() - began_ns);
        if (status != STEPAF_ERR_STATE)
            break;
        while (rank->job->role == STEPAF_FFN && serve_some(rank, 1000))
            ;
    }
    return HS_OK(status) && HS_INT(stepaf_epoch(rank->job->ctx), ==, ++rank->epoch);
}

/* All that are left have the same list, and it has all of them. */
static void compare_lists(struct rank *rank)
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

static bool declare_more(struct rank *rank, int round)
{
    return HS_OK(stepaf_key_declare(rank->job->ctx, (uint64_t)LATER + (uint64_t)round, STEPAF_PULL,
                                    64, NULL));
}

static void refuse_once(struct rank *rank)
{
    stepaf_commit_params_t wrong = {.field_mask = 1 << 7}, strange = {STEPAF_COMMIT_LOST, 9, 0},
                           stranger = {STEPAF_COMMIT_RETURN, 0, 9};

    HS_REFUSED(stepaf_commit_with(rank->job->ctx, &wrong), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_commit_with(rank->job->ctx, &strange), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_commit_with(rank->job->ctx, &stranger), STEPAF_ERR_INVALID);
    HS_REFUSED(stepaf_commit(rank->job->ctx), STEPAF_ERR_PEER_LOST);
    HS_TRUE(strstr(stepaf_last_error()->text, "STEPAF_COMMIT_LEAVE_LOST") != NULL);
    HS_INT(stepaf_epoch(rank->job->ctx), ==, rank->epoch);
}

/* What is left works, without a word of who is not. */
static bool work(struct rank *rank)
{
    bool is_lost = false;

    hs_step("operations");
    if (rank->job->role == STEPAF_FFN) {
        serve(rank, STAMP_OPS, count_alive(rank, STEPAF_ATTENTION));
        return !hs_failed();
    }
    for (int i = 0; i < OPS; i++)
        if (!ask(rank, rank->in_commit ? STEPAF_START_SKIP_LOST : 0, &is_lost) ||
            !HS_TRUE(!is_lost || rank->in_commit))
            return false;
    atomic_fetch_add(&rank->job->shared->stamp[STAMP_OPS], 1);
    return true;
}

static bool reset_stamps(struct rank *rank)
{
    if (!hs_pause(rank->job))
        return false;
    if (rank->job->rank == first_left(rank))
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
        choose_last(rank);
    else
        choose_victims(rank, most);
    if (!reset_stamps(rank))
        return false;
    bool dies = is_victim(rank, rank->job->rank);
    for (int i = 0; i < rank->n_victims && rank->in_commit; i++)
        hs_doom(rank->job, rank->victims[i]);
    if (!rank->in_commit)
        under_load(rank, round);
    if (dies && !rank->in_commit)
        wait_for_death();
    if (!declare_more(rank, round))
        return false;
    hs_step("commit");
    if (rank->in_commit) {
        atomic_fetch_add(&rank->job->shared->stamp[STAMP_ENTERED], 1);
        begin_killing(rank);
        if (dies) {
            (void)stepaf_commit_with(rank->job->ctx, &go_on);
            wait_for_death();
        }
    } else if (refuses) {
        refuse_once(rank);
    }
    if (!commit_on(rank))
        return false;
    if (rank->in_commit) {
        end_killing(rank);
        /* Who was lost behind the verdict is left by the next. */
        if (!hs_pause(rank->job) || !declare_more(rank, LATER + round) || !commit_on(rank))
            return false;
    }
    for (int i = 0; i < rank->n_victims; i++)
        rank->is_dead[rank->victims[i]] = true;
    rank->n_victims = 0;
    compare_lists(rank);
    hear_of_it(rank);
    if (!hs_pause(rank->job) || !work(rank))
        return false;
    return hs_pause(rank->job);
}

static bool prepare(struct rank *rank)
{
    struct hs_job *job = rank->job;
    size_t bytes = (size_t)rank->bytes;
    stepaf_tensor_t pulls[HS_MAX_RANKS];
    void *place = NULL;

    if (!HS_OK(stepaf_key_declare(job->ctx, PUSH, STEPAF_PUSH, bytes, NULL)) ||
        !HS_OK(stepaf_key_declare(job->ctx, PULL, STEPAF_PULL, bytes, NULL)) ||
        !HS_OK(stepaf_alloc(job->ctx, bytes * (size_t)(job->ffn + 1), STEPAF_MEM_HOST, &place)))
        return false;
    rank->source = place;
    rank->target = rank->source + bytes;
    stepaf_tensor_t push = {PUSH, rank->source, bytes};
    for (int p = 0; p < job->peers; p++)
        pulls[p] = (stepaf_tensor_t){PULL, rank->target + (size_t)p * bytes, bytes};
    if (job->role == STEPAF_ATTENTION &&
        !HS_OK(stepaf_plan_create(job->ctx, &push, 1, pulls, job->peers, 0, &rank->plan)))
        return false;
    rank->epoch = 1;
    return HS_OK(stepaf_commit(job->ctx));
}

/* ---- a rank that is merely slow ---- */

static void count_slow(const struct rank *rank, stepaf_members_t *members)
{
    *members = (stepaf_members_t){.size = sizeof(*members)};
    HS_OK(stepaf_members_query(rank->job->ctx, members, NULL, 0));
}

/* The last FFN rank owes an answer: that is seen, and is no loss. */
static void be_slow(struct rank *rank)
{
    int64_t give_up_ns = hs_now_ns() + 20000000000LL * hs_slow();
    _Atomic int64_t *seen = &rank->job->shared->stamp[STAMP_OPS];
    stepaf_request_h request = NULL;
    stepaf_members_t members;

    if (rank->job->role == STEPAF_FFN) {
        while (rank->job->index == rank->job->ffn - 1 && !atomic_load(seen) &&
               hs_now_ns() < give_up_ns)
            hs_sleep_us(1000);
        serve(rank, STAMP_QUIET, 1);
        return;
    }
    count_slow(rank, &members);
    HS_INT(members.n_slow, ==, 0);
    write_head(rank->source, rank->job->index, 0);
    hs_fill(rank->source + HEAD, (size_t)rank->bytes - HEAD, stream_of(rank->job->index, 0, 99));
    if (!HS_OK(stepaf_start(rank->plan, &request)))
        return;
    do {
        (void)stepaf_progress(rank->job->ctx);
        count_slow(rank, &members);
    } while (!(members.n_slow == 1 && stepaf_request_peer(request, 0) == STEPAF_OK) &&
             hs_now_ns() < give_up_ns && !hs_failed());
    HS_INT(members.n_slow, ==, 1);
    HS_INT(members.n_in, ==, rank->job->size);
    HS_INT(members.n_lost + members.n_out, ==, 0);
    HS_INT(members.changes, ==, 0);
    atomic_store(seen, 1);
    HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
    count_slow(rank, &members);
    HS_INT(members.n_slow, ==, 0);
    atomic_store(&rank->job->shared->stamp[STAMP_QUIET], 1);
}

/* ---- a network that is cut in two ---- */

static void run_command(const struct rank *rank, const char *name)
{
    const char *command = hs_option_text(rank->job, name, NULL);

    if (rank->job->rank == 0 && command && system(command) != 0)
        HS_FAILED("this has failed: %s", command);
}

/* The part that does not go on: it says so, and never does again. */
static void stay_behind(struct rank *rank)
{
    HS_REFUSED(stepaf_commit_with(rank->job->ctx, &go_on), STEPAF_ERR_PEER_LOST);
    HS_REFUSED(stepaf_commit_with(rank->job->ctx, &go_on), STEPAF_ERR_STATE);
    HS_INT(stepaf_epoch(rank->job->ctx), ==, rank->epoch);
}

static void cut_in_two(struct rank *rank)
{
    int apart = (int)hs_option_int(rank->job, "--apart", 1), n = rank->job->size;
    bool is_lost = false;

    rank->in_commit = false;
    if (rank->job->role == STEPAF_FFN)
        serve(rank, STAMP_OPS, rank->job->attn);
    else if (ask(rank, 0, &is_lost))
        atomic_fetch_add(&rank->job->shared->stamp[STAMP_OPS], 1);
    if (!declare_more(rank, 0) || !reset_stamps(rank))
        return;
    run_command(rank, "--cut");
    if (!hs_pause(rank->job))
        return;
    hs_step("a commit of two halves");
    if (rank->job->rank >= n - apart) {
        stay_behind(rank);
        (void)hs_pause(rank->job);
    } else if (commit_on(rank)) {
        for (int r = n - apart; r < n; r++)
            rank->is_dead[r] = true;
        compare_lists(rank);
        (void)work(rank);
        (void)hs_pause(rank->job);
    }
    run_command(rank, "--mend");
    (void)hs_pause(rank->job);
    stepaf_finalize(rank->job->ctx);
    rank->job->ctx = NULL;
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

static void body(struct hs_job *job)
{
    struct rank rank = {.job = job, .bytes = hs_option_int(job, "--bytes", BYTES)};
    int deaths = (int)hs_option_int(job, "--deaths", 1);
    bool refuses = hs_option_int(job, "--refuse", 0), figures = hs_option_int(job, "--figures", 0);

    rank.dice = (uint64_t)hs_option_int(job, "--seed", 1);
    if (!hs_open(job) || !prepare(&rank))
        return;
    rank.fd = stepaf_members_fd(job->ctx);
    HS_INT(rank.fd, >=, 0);
    HS_INT(stepaf_members_fd(job->ctx), ==, rank.fd);
    HS_OK(stepaf_members_set_callback(job->ctx, count_call, &rank));
    if (hs_option_int(job, "--slow", 0)) {
        be_slow(&rank);
        if (hs_pause(job))
            hs_close(job);
        return;
    }
    if (hs_option_text(job, "--cut", NULL)) {
        cut_in_two(&rank);
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
    if (figures && job->rank == first_left(&rank)) {
        HS_INT(atomic_load(&job->shared->stamp[STAMP_NAMED]), >, 0);
        HS_INT(atomic_load(&job->shared->stamp[STAMP_COMMIT]), >, 0);
    }
    if (figures && !hs_failed() && job->rank == first_left(&rank))
        printf(
            "of %d ranks, %lld lost: named after %.1f ms at most (bound 100 on the node), commit "
            "without them %.1f ms at most (bound %d)\n",
            job->size, hs_option_int(job, "--deaths", 1),
            (double)atomic_load(&job->shared->stamp[STAMP_NAMED]) / 1e6,
            (double)atomic_load(&job->shared->stamp[STAMP_COMMIT]) / 1e6,
            job->size <= 4 ? 50 : 1000);
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
                   "--apart --slow --stops",
        .limit_s = 60,
        .n_boots = 1,
        .body = body};
    return hs_main(argc, argv, &test);
}
