/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a rank: init, or return; operations; commits as the director wants them; the
 * end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chaos.h"

enum { EXTRA_KEY = 1000, TRIES = 200, LAST_OPS = 8, SETTLED_S = 1 };

void chaos_sample(struct chaos_samples *samples, int64_t ns)
{
    int n = atomic_fetch_add(&samples->n, 1);

    if (n < CHAOS_SAMPLES)
        samples->ns[n] = ns;
}

void chaos_beat(struct chaos *chaos, const char *step)
{
    hs_step(step);
    atomic_store(&chaos->me->step, step);
    atomic_store(&chaos->me->beat_ns, hs_now_ns());
}

bool chaos_is_over(const struct chaos *chaos)
{
    return hs_failed() || atomic_load(&chaos->page->failed);
}

/* ---- what it sees of the others ---- */

static bool is_there(stepaf_member_state_t state)
{
    return state == STEPAF_MEMBER_IN || state == STEPAF_MEMBER_SLOW;
}

static bool query_all(struct chaos *chaos, stepaf_member_state_t *states)
{
    stepaf_members_t members = {.size = sizeof(members)};

    return HS_OK(stepaf_members_query(chaos->job->ctx, &members, states, HS_MAX_RANKS));
}

static void note_lost(struct chaos *chaos, const stepaf_member_state_t *states)
{
    uint64_t lost = 0;

    for (int r = 0; r < chaos_places(chaos->page); r++)
        if (!is_there(states[r]) && atomic_load(&chaos->page->ranks[r].has_begun))
            lost |= (uint64_t)1 << r;
    atomic_store(&chaos->me->lost, lost);
}

/* Take note of who has been found to be lost, and how long that took. Nobody who lives may be. */
static bool look_at_all(struct chaos *chaos)
{
    stepaf_member_state_t states[HS_MAX_RANKS] = {0};

    if (!query_all(chaos, states))
        return false;
    note_lost(chaos, states);
    for (int r = 0; r < chaos_places(chaos->page); r++) {
        struct chaos_rank_page *its = &chaos->page->ranks[r];
        if (is_there(states[r]))
            continue;
        if (!chaos_may_be_lost(chaos, r))
            return HS_FAILED("world rank %d lives, and is %d here: %s", r, (int)states[r],
                             stepaf_members_reason(chaos->job->ctx, r));
        int killed = atomic_load(&its->killed);
        int64_t kill_ns = atomic_load(&its->kill_ns);
        bool is_peer = (chaos->job->role == STEPAF_ATTENTION) != chaos_is_attention(chaos->page, r);
        if (killed > chaos->named[r] && kill_ns && is_peer)
            chaos_sample(&chaos->page->named, hs_now_ns() - kill_ns);
        chaos->named[r] = killed;
    }
    return true;
}

/* Whether all attention ranks that this one counts as members are at rest. */
static bool all_quiet(struct chaos *chaos, int generation)
{
    stepaf_member_state_t states[HS_MAX_RANKS] = {0};

    if (!query_all(chaos, states))
        return false;
    for (int r = 0; r < chaos_places(chaos->page); r++)
        if (chaos_is_attention(chaos->page, r) && is_there(states[r]) &&
            atomic_load(&chaos->page->ranks[r].quiet) < generation)
            return false;
    return true;
}

/* ---- commits ---- */

/* What a generation has that the one before has not. */
static bool declare_next(struct chaos *chaos, int generation)
{
    if (chaos->declared &&
        !HS_OK(stepaf_key_withdraw(chaos->job->ctx, (uint64_t)(EXTRA_KEY + chaos->declared))))
        return false;
    chaos->declared = generation;
    return HS_OK(stepaf_key_declare(chaos->job->ctx, (uint64_t)(EXTRA_KEY + generation),
                                    STEPAF_PULL, 64, NULL));
}

/* All have come to the same list: nobody says in of whom another one says out. */
static bool compare_with_others(struct chaos *chaos, int generation)
{
    stepaf_member_state_t states[HS_MAX_RANKS] = {0};
    _Atomic uint64_t *in = &chaos->page->is_in[generation % 16];
    _Atomic uint64_t *out = &chaos->page->is_out[generation % 16];

    if (!query_all(chaos, states))
        return false;
    for (int r = 0; r < chaos_places(chaos->page); r++) {
        if (states[r] == STEPAF_MEMBER_OUT)
            atomic_fetch_or(out, (uint64_t)1 << r);
        else if (states[r] != STEPAF_MEMBER_ASKS)
            atomic_fetch_or(in, (uint64_t)1 << r);
    }
    uint64_t both = atomic_load(in) & atomic_load(out);
    return !both || HS_FAILED("commit %d: some have these in, others out: %llx", generation,
                              (unsigned long long)both);
}

static stepaf_status_t try_commit(struct chaos *chaos)
{
    static const stepaf_commit_params_t params = {.field_mask =
                                                      STEPAF_COMMIT_LOST | STEPAF_COMMIT_RETURN,
                                                  .lost = STEPAF_COMMIT_LEAVE_LOST,
                                                  .returning = STEPAF_COMMIT_ADMIT};
    stepaf_status_t status = STEPAF_ERR_STATE;
    int n = 1;

    for (int i = 0; i < TRIES && status == STEPAF_ERR_STATE && !chaos_is_over(chaos); i++) {
        int64_t began_ns = hs_now_ns();
        chaos_beat(chaos, "commit");
        status = stepaf_commit_with(chaos->job->ctx, &params);
        chaos_count(chaos->page->commits, status);
        if (!status)
            chaos_sample(&chaos->page->committed, hs_now_ns() - began_ns);
        /* Some rank had something on its way, of an attention rank that is lost. */
        for (n = 1; status == STEPAF_ERR_STATE && n && chaos->job->role == STEPAF_FFN;)
            if (!chaos_serve(chaos, 1000, &n))
                return status;
    }
    return status;
}

/* Why, and who is lost to it, for those who want to know how the job has come to its end. */
static int note_given_up(struct chaos *chaos)
{
    stepaf_member_state_t states[HS_MAX_RANKS] = {0};

    snprintf(chaos->me->given_up, CHAOS_WHY, "%s", stepaf_last_error()->text);
    if (query_all(chaos, states))
        note_lost(chaos, states);
    return CHAOS_GIVEN_UP;
}

/* A life's exit code if it is not to go on; -1: it is. */
static int commit_with_all(struct chaos *chaos, int generation)
{
    if (chaos->job->role == STEPAF_ATTENTION) {
        if (!chaos_drain(chaos))
            return CHAOS_FAILED;
        atomic_store(&chaos->me->quiet, generation);
    } else {
        int n = 0;
        while (!all_quiet(chaos, generation)) {
            if (chaos_is_over(chaos) || !look_at_all(chaos) || !chaos_serve(chaos, 1000, &n))
                return CHAOS_FAILED;
        }
        do
            if (!chaos_serve(chaos, 0, &n))
                return CHAOS_FAILED;
        while (n);
    }
    if (!declare_next(chaos, generation))
        return CHAOS_FAILED;
    uint32_t epoch = stepaf_epoch(chaos->job->ctx);
    stepaf_status_t status = try_commit(chaos);
    if (status == STEPAF_ERR_PEER_LOST && chaos_may_be_lost(chaos, chaos->job->rank))
        return note_given_up(chaos);
    if (!HS_OK(status) || !HS_INT(stepaf_epoch(chaos->job->ctx), ==, epoch + 1) ||
        !compare_with_others(chaos, generation))
        return CHAOS_FAILED;
    atomic_store(&chaos->me->epoch, (int)stepaf_epoch(chaos->job->ctx));
    atomic_store(&chaos->me->done, generation);
    return -1;
}

/* ---- init, and return ---- */

/* Where those can be called that serve. */
static void list_addresses(const struct chaos *chaos, char *text, size_t room)
{
    size_t used = 0;

    text[0] = '\0';
    for (int r = 0; r < chaos_places(chaos->page); r++) {
        const struct chaos_rank_page *its = &chaos->page->ranks[r];
        if (r != chaos->job->rank && atomic_load(&its->place) == CHAOS_SERVING && used < room)
            used +=
                (size_t)snprintf(text + used, room - used, "%s%s", used ? "," : "", its->address);
    }
}

static stepaf_status_t init_again(struct chaos *chaos)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_SPLIT, .split = chaos->job->split};
    char text[HS_MAX_RANKS * CHAOS_ADDRESS];

    list_addresses(chaos, text, sizeof(text));
    if (!text[0]) /* the director ends what goes on like this */
        return STEPAF_ERR_TIMEOUT;
    setenv("STEPAF_JOIN", text, 1);
    snprintf(text, sizeof(text), "%d", chaos->job->rank);
    setenv("STEPAF_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", chaos->job->size);
    setenv("STEPAF_SIZE", text, 1);
    stepaf_status_t status = stepaf_init(NULL, &params, &chaos->job->ctx);
    unsetenv("STEPAF_JOIN");
    return status;
}

static bool publish_address(const struct chaos *chaos)
{
    char text[1024];

    if (!HS_OK(stepaf_members_address(chaos->job->ctx, text, sizeof(text))))
        return false;
    size_t bytes = strcspn(text, ",");
    if (!HS_TRUE(bytes < CHAOS_ADDRESS))
        return false;
    memcpy(chaos->me->address, text, bytes);
    return true;
}

/* Its exit code if it is not a member then; else -1. What may go wrong is the matter of those that
 * are called. */
static int become_member(struct chaos *chaos)
{
    struct hs_job *job = chaos->job;

    chaos_beat(chaos, "init");
    job->fds = hs_count_fds();
    if (chaos->life == 0) {
        stepaf_params_t params = {.field_mask = STEPAF_PARAM_SPLIT, .split = job->split};
        if (!HS_OK(hs_init(job, 0, &params, &job->ctx)))
            return CHAOS_FAILED;
    } else {
        stepaf_status_t status = init_again(chaos);
        chaos_count(chaos->page->guests, status);
        if (status)
            snprintf(chaos->me->not_admitted, CHAOS_WHY, "in init: %s", stepaf_last_error()->text);
        if (status)
            return status == STEPAF_ERR_TIMEOUT || status == STEPAF_ERR_BOOT ||
                           status == STEPAF_ERR_PEER_LOST
                       ? CHAOS_AGAIN
                       : (HS_OK(status), CHAOS_FAILED);
    }
    hs_take_place(job);
    if (!chaos_ops_prepare(chaos))
        return CHAOS_FAILED;
    chaos_beat(chaos, "first commit");
    stepaf_status_t status = stepaf_commit(job->ctx);
    chaos_count(chaos->life ? chaos->page->guests : chaos->page->commits, status);
    if (chaos->life && status) {
        snprintf(chaos->me->not_admitted, CHAOS_WHY, "%s", stepaf_last_error()->text);
        if (getenv("CHAOS_VERBOSE"))
            fprintf(stderr, "[rank %d] life %d: %s: %s\n", job->rank, chaos->life,
                    stepaf_status_name(status), chaos->me->not_admitted);
        return CHAOS_AGAIN;
    }
    atomic_store(&chaos->me->epoch, (int)stepaf_epoch(job->ctx));
    return HS_OK(status) && publish_address(chaos) ? -1 : CHAOS_FAILED;
}

/* ---- a life ---- */

static void note_held(struct chaos *chaos, int when)
{
    atomic_store(&chaos->me->fds[when], hs_count_fds());
    atomic_store(&chaos->me->mappings[when], hs_count_mappings(getpid(), ""));
    atomic_store(&chaos->me->resident[when], (int64_t)hs_resident_bytes());
}

static void note_served(struct chaos *chaos)
{
    struct chaos_rank_page *me = chaos->me;
    int64_t kill_ns = atomic_exchange(&me->kill_ns, 0);

    atomic_store(&me->faults_before, atomic_load(&me->faults));
    if (kill_ns && chaos->life)
        chaos_sample(&chaos->page->whole, hs_now_ns() - kill_ns);
    atomic_store(&me->since_ns, hs_now_ns());
    atomic_store(&me->place, CHAOS_SERVING);
}

/* One turn of its work; its exit code, or -1. */
static int work_on(struct chaos *chaos, bool *is_fresh)
{
    struct chaos_rank_page *me = chaos->me;
    int wanted = atomic_load(&chaos->page->generation), n = 0;
    int64_t pause_us = hs_option_int(chaos->job, "--pause-us", 0);

    if (!look_at_all(chaos))
        return CHAOS_FAILED;
    if (!*is_fresh && atomic_load(&me->done) >= 0 && atomic_load(&me->done) < wanted) {
        int code = commit_with_all(chaos, wanted);
        *is_fresh = true;
        return code;
    }
    if (chaos->job->role == STEPAF_FFN) {
        *is_fresh = false;
        return chaos_serve(chaos, 2000 + pause_us, &n) ? -1 : CHAOS_FAILED;
    }
    /* The first operation of an epoch is for all: whoever has just returned learns from it which it
     * is. */
    bool is_well = chaos_ask(chaos, *is_fresh);
    *is_fresh = atomic_load(&me->done) < 0;
    hs_sleep_us(pause_us);
    if (chaos_draw(&chaos->dice, 3) == 0)
        hs_sleep_us((int64_t)chaos_draw(&chaos->dice, 2000));
    return is_well ? -1 : CHAOS_FAILED;
}

/* With nobody dying any more: all operations are answered by all. */
static int come_to_an_end(struct chaos *chaos)
{
    int64_t until_ns = hs_now_ns() + chaos_patience_ns();
    int n = 0;

    for (int i = 0; i < LAST_OPS && chaos->job->role == STEPAF_ATTENTION; i++) {
        stepaf_member_state_t states[HS_MAX_RANKS] = {0};
        if (!query_all(chaos, states) || !chaos_ask(chaos, i % 2 == 0))
            return CHAOS_FAILED;
        for (int r = 0; r < chaos_places(chaos->page); r++)
            if (atomic_load(&chaos->page->ranks[r].has_begun) && !HS_TRUE(is_there(states[r])))
                return CHAOS_FAILED;
    }
    if (!chaos_drain(chaos))
        return CHAOS_FAILED;
    atomic_fetch_add(&chaos->page->last_ops, chaos->job->role == STEPAF_ATTENTION);
    while (atomic_load(&chaos->page->last_ops) < chaos_n_attention(chaos->page)) {
        if (chaos_is_over(chaos) || !HS_TRUE(hs_now_ns() < until_ns))
            return CHAOS_FAILED;
        if (chaos->job->role == STEPAF_ATTENTION)
            hs_sleep_us(1000);
        else if (!chaos_serve(chaos, 1000, &n))
            return CHAOS_FAILED;
    }
    note_held(chaos, 1);
    chaos->job->noisy =
        true; /* who has said something to whom decides on how many descriptors there are */
    hs_close(chaos->job);
    return hs_failed() ? CHAOS_FAILED : CHAOS_DONE;
}

int chaos_live(struct hs_job *job, struct chaos_page *page, int life)
{
    struct chaos chaos = {.job = job, .page = page, .me = &page->ranks[job->rank], .life = life};
    bool is_fresh = true;

    chaos.dice = hs_mix((uint64_t)hs_option_int(job, "--seed", 1) * 64 + (uint64_t)job->rank) +
                 (uint64_t)life;
    int code = become_member(&chaos);
    if (code >= 0)
        return code;
    if (!life)
        atomic_store(&chaos.me->done, 0);
    for (int r = 0; r < chaos_places(page); r++)
        chaos.named[r] = atomic_load(&page->ranks[r].killed);
    note_served(&chaos);
    while (code < 0 && atomic_load(&page->over) < 2) {
        if (chaos_is_over(&chaos))
            return CHAOS_FAILED;
        if (!chaos.is_settled &&
            hs_now_ns() - atomic_load(&chaos.me->since_ns) > SETTLED_S * 1000000000LL) {
            chaos.is_settled = true;
            note_held(&chaos, 0);
        }
        code = work_on(&chaos, &is_fresh);
    }
    return code >= 0 ? code : come_to_an_end(&chaos);
}
