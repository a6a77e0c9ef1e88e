/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that come back: in each round one is killed, the others commit without it and go on, a new process takes its
 * place by their next commit, and everybody works with it; every byte is compared. Each rank has a parent without a
 * context, which starts the new process, as whatever supervises processes would.
 *
 * --rounds N. --seed N: who dies. --figures 1: print times and what is held. --wrong 1: before it returns, processes ask that do not fit. --role 0 or 1: only attention,
 * or FFN ranks die. --two 1: two die at once, and return by one commit. --stop 1: the first to return hangs, and the
 * others go on without it. --strict 1: the first use comes in the time that is promised. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum {
    PUSH = 1,
    PULL = 2,
    BYTES = 3000,
    OPS = 8,
    HEAD = 16,
    SETTLED = 4, /* rounds after which nothing grows any more */
    LIMIT_S = 30,
    FIRST_USE_MS = 1000
};

/* Places in the shared page; 0 is the time of the last death. */
enum {
    STAMP_MET = 1,   /* ranks that have come to a meeting, ever */
    STAMP_OPS,       /* attention ranks that are through, ever */
    STAMP_INIT,      /* when the new process has begun its init */
    STAMP_FIRST_USE, /* the longest time from then to the first operation that has used it */
    STAMP_COMMIT,    /* the longest commit that has admitted one */
    STAMP_ROUND,
    STAMP_ADDRESS = 32 /* text, to the end */
};

static const char secret[] = "of this test alone";

struct rank {
    struct hs_job *job;
    unsigned char *source, *target;
    stepaf_plan_h plan;
    uint64_t n_ops;
    uint32_t epoch;
    int round;
    int64_t met, ops; /* what the stamps are to come to */
    bool is_new;      /* it has returned in this round */
};

static int victim_of(const struct rank *rank, int round)
{
    struct hs_job *job = rank->job;
    uint64_t dice = hs_mix((uint64_t)hs_option_int(job, "--seed", 1) * 1000 + (uint64_t)round);
    long long role = hs_option_int(job, "--role", -1);
    int victim = (int)(dice % (uint64_t)job->size);

    /* The split of these tests has attention ranks first. */
    if (role == 0)
        victim = (int)(dice % (uint64_t)job->attn);
    if (role == 1)
        victim = job->attn + (int)(dice % (uint64_t)job->ffn);
    return victim;
}

/* With --two, another one of the other role, in splits of two halves. */
static int second_of(const struct rank *rank, int round)
{
    int size = rank->job->size;

    return hs_option_int(rank->job, "--two", 0) ? (victim_of(rank, round) + size / 2) % size : -1;
}

static bool dies_in(const struct rank *rank, int round, int world)
{
    return victim_of(rank, round) == world || second_of(rank, round) == world;
}

static int n_dead(const struct rank *rank)
{
    return hs_option_int(rank->job, "--two", 0) ? 2 : 1;
}

static bool is_leader(const struct rank *rank)
{
    int leader = 0;

    while (dies_in(rank, rank->round, leader))
        leader++;
    return rank->job->rank == leader;
}

/* ---- order of events ---- */

static bool await_stamp(const struct rank *rank, int stamp, int64_t value)
{
    int64_t until_ns = hs_now_ns() + LIMIT_S * 1000000000LL * hs_slow();

    while (atomic_load(&rank->job->shared->stamp[stamp]) < value) {
        if (rank->job->ctx)
            (void)stepaf_progress(rank->job->ctx);
        if (hs_failed() || hs_hopeless(rank->job))
            return false;
        if (hs_now_ns() > until_ns)
            return HS_FAILED("round %d: %lld have come of %lld", rank->round,
                             (long long)atomic_load(&rank->job->shared->stamp[stamp]),
                             (long long)value);
        hs_sleep_us(200);
    }
    return true;
}

static bool meet(struct rank *rank, int n)
{
    rank->met += n;
    atomic_fetch_add(&rank->job->shared->stamp[STAMP_MET], 1);
    return await_stamp(rank, STAMP_MET, rank->met);
}

static void note_most(const struct rank *rank, int stamp, int64_t ns)
{
    _Atomic int64_t *place = &rank->job->shared->stamp[stamp];
    int64_t most = atomic_load(place);

    while (most < ns && !atomic_compare_exchange_weak(place, &most, ns))
        ;
}

/* ---- operations ---- */

static uint64_t stream_of(int attention, uint64_t op, int ffn)
{
    return hs_mix((uint64_t)attention * 1000003 + op) + (uint64_t)ffn * 77;
}

/* One operation, answered by all that are members. */
static bool ask(struct rank *rank, int n_answers)
{
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_FLAGS,
                                    .flags = STEPAF_START_SKIP_LOST | STEPAF_START_WAIT};
    stepaf_request_h request = NULL;
    uint64_t words[2] = {(uint64_t)rank->job->index, rank->n_ops++};
    int n = 0;

    memcpy(rank->source, words, HEAD);
    hs_fill(rank->source + HEAD, BYTES - HEAD, stream_of(rank->job->index, words[1], 99));
    hs_fill(rank->target, (size_t)BYTES * (size_t)rank->job->peers, 12345);
    if (!HS_OK(stepaf_start_with(rank->plan, &params, &request)))
        return false;
    stepaf_status_t status = stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT);
    if (status != STEPAF_ERR_PEER_LOST && !HS_OK(status))
        return false;
    for (int p = 0; p < rank->job->peers; p++) {
        int f = stepaf_peer_rank(rank->job->ctx, p);
        if (stepaf_request_peer(request, f) != STEPAF_OK)
            continue;
        n++;
        if (!hs_verify("an answer", rank->target + (size_t)p * BYTES, BYTES,
                       stream_of(rank->job->index, words[1], f)))
            return false;
    }
    return HS_INT(n, ==, n_answers);
}

static bool answer_batch(struct rank *rank, stepaf_batch_h batch)
{
    stepaf_tensor_info_t in = {.size = sizeof(in)};
    stepaf_tensor_t tensor = {PULL, rank->source, BYTES};
    stepaf_request_h request = NULL;
    uint64_t words[2];

    if (!HS_OK(stepaf_batch_tensor(batch, 0, &in)) || !HS_INT(in.bytes, ==, BYTES))
        return false;
    memcpy(words, in.data, HEAD);
    if (!hs_verify("a push", (unsigned char *)in.data + HEAD, BYTES - HEAD,
                   stream_of((int)words[0], words[1], 99)))
        return false;
    hs_fill(rank->source, BYTES, stream_of((int)words[0], words[1], rank->job->index));
    return HS_OK(stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, &request)) &&
           HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT));
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

/* Whether it is an FFN rank that this attention rank has as a peer. */
static bool is_ffn_peer(const struct rank *rank, int world)
{
    for (int p = 0; p < rank->job->peers; p++)
        if (stepaf_world_rank(rank->job->ctx, STEPAF_GROUP_FFN,
                              stepaf_peer_rank(rank->job->ctx, p)) == world)
            return true;
    return false;
}

static bool is_of(const struct rank *rank, int world, stepaf_role_t role)
{
    return world >= 0 && (world < rank->job->attn) == (role == STEPAF_ATTENTION);
}

static int attn_left(const struct rank *rank, int round)
{
    return rank->job->attn - is_of(rank, victim_of(rank, round), STEPAF_ATTENTION) -
           is_of(rank, second_of(rank, round), STEPAF_ATTENTION);
}

/* Some operations of all attention ranks, answered by all FFN ranks; or of those that are left in this round. */
static bool work(struct rank *rank, bool is_whole)
{
    int n_attn = is_whole ? rank->job->attn : attn_left(rank, rank->round);
    int n_lost = is_whole ? 0
                          : is_ffn_peer(rank, victim_of(rank, rank->round)) +
                                is_ffn_peer(rank, second_of(rank, rank->round));
    int64_t until_ns = hs_now_ns() + LIMIT_S * 1000000000LL * hs_slow();

    hs_step("operations");
    rank->ops += n_attn;
    if (rank->job->role == STEPAF_ATTENTION) {
        for (int i = 0; i < OPS; i++) {
            if (!ask(rank, rank->job->peers - n_lost))
                return false;
            if (!i && rank->is_new)
                note_most(rank, STAMP_FIRST_USE,
                          hs_now_ns() - atomic_load(&rank->job->shared->stamp[STAMP_INIT]));
        }
        atomic_fetch_add(&rank->job->shared->stamp[STAMP_OPS], 1);
        return true;
    }
    bool is_first = rank->is_new;
    while (!hs_failed() && !hs_hopeless(rank->job) &&
           atomic_load(&rank->job->shared->stamp[STAMP_OPS]) < rank->ops) {
        if (serve_some(rank, 2000) && is_first) {
            note_most(rank, STAMP_FIRST_USE,
                      hs_now_ns() - atomic_load(&rank->job->shared->stamp[STAMP_INIT]));
            is_first = false;
        }
        if (hs_now_ns() > until_ns)
            return HS_FAILED("round %d: not all operations have come", rank->round);
    }
    return !hs_failed();
}

/* ---- commits ---- */

static bool commit_as(struct rank *rank, stepaf_commit_return_t returning)
{
    stepaf_commit_params_t params = {.field_mask = STEPAF_COMMIT_LOST | STEPAF_COMMIT_RETURN,
                                     .lost = STEPAF_COMMIT_LEAVE_LOST,
                                     .returning = returning};
    int64_t began_ns = hs_now_ns();

    hs_step(returning == STEPAF_COMMIT_ADMIT ? "a commit that admits" : "a commit without it");
    if (!HS_OK(stepaf_commit_with(rank->job->ctx, &params)))
        return false;
    if (returning == STEPAF_COMMIT_ADMIT && !rank->is_new)
        note_most(rank, STAMP_COMMIT, hs_now_ns() - began_ns);
    return HS_INT(stepaf_epoch(rank->job->ctx), ==, rank->is_new ? 1 : ++rank->epoch);
}

static stepaf_member_state_t state_of(const struct rank *rank, int world)
{
    stepaf_member_state_t states[HS_MAX_RANKS] = {0};
    stepaf_members_t members = {.size = sizeof(members)};

    if (!HS_OK(stepaf_members_query(rank->job->ctx, &members, states, HS_MAX_RANKS)))
        return STEPAF_MEMBER_OUT;
    HS_INT(members.n_in + members.n_lost + members.n_out + members.n_asking, ==, rank->job->size);
    return states[world];
}

static bool await_state(const struct rank *rank, int world, stepaf_member_state_t state)
{
    int64_t until_ns = hs_now_ns() + LIMIT_S * 1000000000LL * hs_slow();

    hs_step("until it asks");
    while (state_of(rank, world) != state) {
        (void)stepaf_progress(rank->job->ctx);
        if (hs_failed() || hs_hopeless(rank->job))
            return false;
        if (hs_now_ns() > until_ns)
            return HS_FAILED("world rank %d is %d, should be %d: %s", world,
                             (int)state_of(rank, world), (int)state,
                             stepaf_members_reason(rank->job->ctx, world));
        hs_sleep_us(500);
    }
    return true;
}

/* ---- the place that is free ---- */

/* For the process that is to come. */
static bool tell_address(const struct rank *rank)
{
    char text[1024];
    size_t room = (HS_STAMPS - STAMP_ADDRESS) * sizeof(int64_t);

    if (!HS_OK(stepaf_members_address(rank->job->ctx, text, sizeof(text))))
        return false;
    size_t bytes = strcspn(text, ",");
    if (!HS_TRUE(bytes < room))
        return false;
    memset((void *)&rank->job->shared->stamp[STAMP_ADDRESS], 0, room);
    memcpy((void *)&rank->job->shared->stamp[STAMP_ADDRESS], text, bytes);
    return true;
}

static stepaf_status_t init_back(const struct rank *rank, const char *its_secret, int number,
                                 int64_t timeout_us, stepaf_context_h *ctx_p)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_SPLIT, .split = rank->job->split};
    char text[32];

    setenv("STEPAF_JOIN", (const char *)&rank->job->shared->stamp[STAMP_ADDRESS], 1);
    setenv("STEPAF_SECRET", its_secret, 1);
    snprintf(text, sizeof(text), "%d", number);
    setenv("STEPAF_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", rank->job->size);
    setenv("STEPAF_SIZE", text, 1);
    snprintf(text, sizeof(text), "%lld", (long long)timeout_us);
    setenv("STEPAF_INIT_TIMEOUT_US", text, 1);
    stepaf_status_t status = stepaf_init(NULL, &params, ctx_p);
    unsetenv("STEPAF_JOIN");
    return status;
}

/* Processes that do not fit: none of them changes anything. */
static void ask_in_vain(const struct rank *rank)
{
    int other =
        (rank->job->rank + 2) % rank->job->size; /* whoever is called is the first or second */
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE};
    stepaf_context_h ctx = NULL;

    HS_REFUSED(init_back(rank, "guessed", rank->job->rank, 10000000, &ctx), STEPAF_ERR_BOOT);
    HS_TRUE(strstr(stepaf_last_error()->text, "STEPAF_SECRET") != NULL);
    HS_REFUSED(init_back(rank, "", rank->job->rank, 10000000, &ctx), STEPAF_ERR_SETTING);
    HS_REFUSED(init_back(rank, secret, other, 100000, &ctx), STEPAF_ERR_TIMEOUT);
    HS_TRUE(strstr(stepaf_last_error()->text, "is not lost") != NULL);
    (void)params;
    /* Another size of a key: it is turned away, and the commit of the others goes on. */
    if (!HS_OK(init_back(rank, secret, rank->job->rank, 10000000, &ctx)))
        return;
    HS_OK(stepaf_key_declare(ctx, PUSH, STEPAF_PUSH, BYTES / 2, NULL));
    HS_OK(stepaf_key_declare(ctx, PULL, STEPAF_PULL, BYTES, NULL));
    HS_REFUSED(stepaf_commit(ctx), STEPAF_ERR_BOOT);
    HS_TRUE(strstr(stepaf_last_error()->text, "key 1") != NULL);
    stepaf_finalize(ctx);
}

/* ---- a rank ---- */

static bool prepare(struct rank *rank)
{
    struct hs_job *job = rank->job;
    stepaf_tensor_t pulls[HS_MAX_RANKS];
    void *place = NULL;

    if (!HS_OK(stepaf_key_declare(job->ctx, PUSH, STEPAF_PUSH, BYTES, NULL)) ||
        !HS_OK(stepaf_key_declare(job->ctx, PULL, STEPAF_PULL, BYTES, NULL)) ||
        !HS_OK(stepaf_alloc(job->ctx, (size_t)BYTES * (size_t)(job->ffn + 1), STEPAF_MEM_HOST,
                            &place)))
        return false;
    rank->source = place;
    rank->target = rank->source + BYTES;
    stepaf_tensor_t push = {PUSH, rank->source, BYTES};
    for (int p = 0; p < job->peers; p++)
        pulls[p] = (stepaf_tensor_t){PULL, rank->target + (size_t)p * BYTES, BYTES};
    return job->role == STEPAF_FFN ||
           HS_OK(stepaf_plan_create(job->ctx, &push, 1, pulls, job->peers, 0, &rank->plan));
}

static void take_places(struct hs_job *job)
{
    job->role = stepaf_role(job->ctx);
    job->attn = stepaf_size(job->ctx, STEPAF_GROUP_ATTENTION);
    job->ffn = stepaf_size(job->ctx, STEPAF_GROUP_FFN);
    job->index =
        stepaf_rank(job->ctx, job->role == STEPAF_FFN ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION);
    job->peers = stepaf_n_peers(job->ctx);
}

/* Meetings in a round of those that are left, between two of all. */
static int n_apart(const struct rank *rank)
{
    return hs_option_int(rank->job, "--stop", 0) ? 4 : 2;
}

static int64_t met_before(const struct rank *rank, int round)
{
    int64_t n = rank->job->size, left = n - n_dead(rank);

    return round * (n + n_apart(rank) * left + n);
}

/* It works, and then it is killed. */
static void be_killed(void)
{
    for (;;)
        pause();
}

/* Until the victim is dead, and its place free. */
static bool lose_one(struct rank *rank, int victim)
{
    struct hs_job *job = rank->job;
    int left = job->size - n_dead(rank);

    if (is_leader(rank)) {
        if (!tell_address(rank))
            return false;
        hs_signal(job, victim, SIGKILL);
        if (second_of(rank, rank->round) >= 0)
            hs_signal(job, second_of(rank, rank->round), SIGKILL);
    }
    if (!meet(rank, left) || !commit_as(rank, STEPAF_COMMIT_KEEP_OUT) || !work(rank, false))
        return false;
    if (hs_option_int(job, "--wrong", 0)) /* it asks, and does not fit */
        if (!await_state(rank, victim, STEPAF_MEMBER_ASKS) ||
            !HS_OK(stepaf_key_declare(job->ctx, 1000 + (uint64_t)rank->round, STEPAF_PULL, 64,
                                      NULL)) ||
            !commit_as(rank, STEPAF_COMMIT_ADMIT))
            return false;
    return meet(rank, left);
}

/* The process that asks stops as if it hung: the others' commit takes it in, and goes on without it. It is killed
 * then, and the next one asks. */
static bool stop_one(struct rank *rank, int victim)
{
    if (is_leader(rank))
        hs_signal(rank->job, victim, SIGSTOP);
    if (!meet(rank, rank->job->size - n_dead(rank)) || !commit_as(rank, STEPAF_COMMIT_ADMIT))
        return false;
    stepaf_member_state_t state = state_of(rank, victim);
    HS_TRUE(state == STEPAF_MEMBER_LOST || state == STEPAF_MEMBER_OUT);
    if (!meet(rank, rank->job->size - n_dead(rank)))
        return false;
    if (is_leader(rank)) {
        if (!tell_address(rank))
            return false;
        hs_signal(rank->job, victim, SIGKILL);
    }
    return await_state(rank, victim, STEPAF_MEMBER_ASKS);
}

static bool do_round(struct rank *rank)
{
    struct hs_job *job = rank->job;
    int victim = victim_of(rank, rank->round);

    if (!rank->is_new) {
        if (!work(rank, true) || !meet(rank, job->size))
            return false;
        if (dies_in(rank, rank->round, job->rank))
            be_killed();
        if (!lose_one(rank, victim) || !await_state(rank, victim, STEPAF_MEMBER_ASKS))
            return false;
        int second = second_of(rank, rank->round);
        if (second >= 0 && !await_state(rank, second, STEPAF_MEMBER_ASKS))
            return false;
        if (hs_option_int(job, "--stop", 0) && !stop_one(rank, victim))
            return false;
    }
    if (!commit_as(rank, STEPAF_COMMIT_ADMIT) || !work(rank, true))
        return false;
    for (int r = 0; r < job->size;
         r++) /* before the others may be in the next round, and one be killed */
        HS_TRUE(state_of(rank, r) == STEPAF_MEMBER_IN || state_of(rank, r) == STEPAF_MEMBER_SLOW);
    if (!meet(rank, job->size))
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
    /* Who has said something to whom first decides on how many connections members have: two at most. */
    HS_INT(now.fds, <=, held->fds + 2 * rank->job->size);
    HS_INT(now.mappings, <=, held->mappings + 2); /* of the allocator */
    if (hs_option_int(rank->job, "--figures", 0) &&
        rank->round + 1 == hs_option_int(rank->job, "--rounds", 3))
        printf("[%d] round %d, since round %d: descriptors %d (were %d), mappings %d (%d), "
               "resident %zu KiB (%zu)\n",
               rank->job->rank, rank->round, held->round, now.fds, held->fds, now.mappings,
               held->mappings, now.resident >> 10, held->resident >> 10);
}

static void be_rank(struct hs_job *job, int life)
{
    struct rank rank = {.job = job, .round = (int)atomic_load(&job->shared->stamp[STAMP_ROUND])};
    int rounds = (int)hs_option_int(job, "--rounds", 3);
    struct held held = {0};
    bool is_open;

    if (life == 0) {
        setenv("STEPAF_SECRET", secret, 1);
        is_open = hs_open(job);
    } else {
        job->fds = hs_count_fds();
        if (hs_option_int(job, "--wrong", 0))
            ask_in_vain(&rank);
        atomic_store(&job->shared->stamp[STAMP_INIT], hs_now_ns());
        hs_step("init, to return");
        is_open = HS_OK(init_back(&rank, secret, job->rank, 60000000, &job->ctx));
    }
    if (!is_open)
        return;
    take_places(job);
    rank.n_ops = (uint64_t)rank.round * 1000000;
    rank.is_new = life > 0;
    if (!prepare(&rank) || (!life && !HS_OK(stepaf_commit(job->ctx))))
        return;
    rank.epoch = 1;
    for (; rank.round < rounds && !hs_failed(); rank.round++) {
        int left = job->size - n_dead(&rank);
        rank.met =
            met_before(&rank, rank.round) + (rank.is_new ? job->size + n_apart(&rank) * left : 0);
        rank.ops = 0;
        for (int r = 0; r < rank.round; r++)
            rank.ops += 2 * job->attn + attn_left(&rank, r);
        if (rank.is_new)
            rank.ops += job->attn + attn_left(&rank, rank.round);
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
    hs_close(job);
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
        if (!WIFEXITED(status) || WEXITSTATUS(status))
            HS_FAILED("its process has ended with status %x", status);
        return;
    }
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "returns",
        .options = "--rounds --seed --figures --wrong --role --two --stop --strict",
        .limit_s = 60,
        .n_boots = 1,
        .body = body};
    return hs_main(argc, argv, &test);
}
