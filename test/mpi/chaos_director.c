/* SPDX-License-Identifier: Apache-2.0 */
/* The director: when which fault is made, to whom; when all commit; and whether anybody hangs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chaos.h"

enum {
    TICK_US = 500,
    COMMIT_EVERY_MS = 40,
    RESTART_MS = 150, /* at most, from a death to the next life */
    STOP_MS = 150,    /* at most */
    SLOW_MS = 300,    /* at most, and for so long a way takes up to SLOW_US */
    SLOW_US = 8000,
    CUT_MS = 250,    /* at most: nobody notices */
    REST_MS = 2000,  /* at most, after all have noticed */
    ALONE_MS = 1000, /* without anybody who serves, before that is the end */
    LINGER_S = 5     /* for those that hang, after a failure */
};

struct director {
    const struct hs_job *job;
    struct chaos_page *page;
    int keeper; /* a rank that is never killed: what it holds shows what grows */
    struct chaos_cable cable;
    uint64_t dice;
    int64_t next_ns, mean_ns, committed_ns;
    int64_t served_ns; /* when some rank was last seen to serve */
    bool wants_commit;
    int64_t go_on_ns[HS_MAX_RANKS]; /* when who is stopped goes on; 0: it is not */
    int in_commit; /* CHAOS_KILL_IN_COMMIT or CHAOS_STOP_IN_COMMIT, for the next one; or -1 */
    int victim;
    int64_t delay_us, span_ns;
};

static const char *const fault_names[] = {
#define CHAOS_FAULT_NAME(name_, text_, weight_, on_net_) text_,
    CHAOS_FAULTS(CHAOS_FAULT_NAME)
#undef CHAOS_FAULT_NAME
};
static const int fault_weights[] = {
#define CHAOS_FAULT_WEIGHT(name_, text_, weight_, on_net_) weight_,
    CHAOS_FAULTS(CHAOS_FAULT_WEIGHT)
#undef CHAOS_FAULT_WEIGHT
};
static const bool fault_is_on_net[] = {
#define CHAOS_FAULT_NET(name_, text_, weight_, on_net_) on_net_,
    CHAOS_FAULTS(CHAOS_FAULT_NET)
#undef CHAOS_FAULT_NET
};

const char *chaos_fault_name(int fault)
{
    return fault_names[fault];
}

/* ---- what there is ---- */

/* More than half have to be left, and one of each role. */
static bool may_die(const struct director *director, int rank)
{
    const struct chaos_page *page = director->page;
    bool is_attention = chaos_is_attention(page, rank);
    int of_role = chaos_count_serving(page, is_attention, !is_attention);
    int all = chaos_count_serving(page, true, true), begun = chaos_count_begun(page);

    return rank != director->keeper && chaos_place(page, rank) == CHAOS_SERVING &&
           !director->cable.is_parted && of_role > 1 && begun - all < (begun - 1) / 2;
}

static bool send_signal(const struct director *director, int rank, int number)
{
    int pid = atomic_load(&director->page->ranks[rank].pid);

    return pid > 1 && kill(pid, number) == 0;
}

/* ---- faults ---- */

static bool kill_one(struct director *director, int rank, int64_t restart_ns)
{
    struct chaos_rank_page *its = &director->page->ranks[rank];
    int64_t now_ns = hs_now_ns();

    if (!may_die(director, rank))
        return false;
    atomic_store(&its->restart_ns, now_ns + restart_ns);
    atomic_fetch_add(&its->faults, 1);
    atomic_store(&its->kill_ns, now_ns);
    atomic_fetch_add(&its->killed, 1);
    (void)send_signal(director, rank, SIGKILL);
    atomic_store(&its->place, CHAOS_DOWN); /* before its supervisor says so */
    return true;
}

static bool kill_guest(struct director *director)
{
    for (int r = 0; r < chaos_places(director->page); r++)
        if (chaos_place(director->page, r) == CHAOS_COMING &&
            atomic_load(&director->page->ranks[r].life)) {
            atomic_store(&director->page->ranks[r].restart_ns, hs_now_ns() + 1000000);
            return send_signal(director, r, SIGKILL);
        }
    return false;
}

static bool stop_one(struct director *director, int rank, int64_t span_ns)
{
    if (chaos_place(director->page, rank) == CHAOS_DOWN || director->go_on_ns[rank] ||
        !send_signal(director, rank, SIGSTOP))
        return false;
    director->go_on_ns[rank] = hs_now_ns() + span_ns;
    return true;
}

/* The next new rank, of one role and the other in turn. */
static bool let_join(struct director *director)
{
    struct chaos_page *page = director->page;

    if (director->cable.is_parted)
        return false;
    for (int i = 0; i < page->room; i++) {
        int r = page->size + (i % 2) * (page->room / 2) + i / 2;
        if (!atomic_exchange(&page->ranks[r].has_begun, 1))
            return true;
    }
    return false;
}

/* The draws are the same whatever has come of those before. */
static void make_fault(struct director *director)
{
    uint64_t total = 0, at;
    int fault = 0, size = chaos_places(director->page);
    bool is_made = false;

    for (int i = 0; i < CHAOS_N_FAULTS; i++)
        total += (uint64_t)(fault_is_on_net[i] && director->cable.fd < 0 ? 0 : fault_weights[i]);
    at = chaos_draw(&director->dice, total);
    int rank = (int)chaos_draw(&director->dice, (uint64_t)size);
    int64_t span = (int64_t)chaos_draw(&director->dice, 1000000); /* of a million */
    int64_t delay_us = (int64_t)chaos_draw(&director->dice, 15000);
    director->next_ns += (int64_t)chaos_draw(&director->dice, (uint64_t)director->mean_ns * 2);
    for (;; fault++) {
        uint64_t weight =
            (uint64_t)(fault_is_on_net[fault] && director->cable.fd < 0 ? 0 : fault_weights[fault]);
        if (at < weight)
            break;
        at -= weight;
    }
    switch (fault) {
    case CHAOS_KILL:
        is_made = kill_one(director, rank, span * RESTART_MS);
        break;
    case CHAOS_KILL_GUEST:
        is_made = kill_guest(director);
        break;
    case CHAOS_STOP:
        is_made = stop_one(director, rank, span * STOP_MS);
        break;
    case CHAOS_KILL_IN_COMMIT:
    case CHAOS_STOP_IN_COMMIT:
        if (director->in_commit >= 0)
            break;
        director->in_commit = fault;
        director->victim = rank;
        director->delay_us = delay_us;
        director->span_ns = span * (fault == CHAOS_STOP_IN_COMMIT ? STOP_MS : RESTART_MS);
        director->wants_commit = true;
        return; /* it counts when it is done */
    case CHAOS_COMMIT:
        is_made = director->wants_commit = true;
        break;
    case CHAOS_SLOW:
        is_made = chaos_cable_slow(&director->cable, span * SLOW_US / 1000000,
                                   delay_us * SLOW_MS * 1000000LL / 15000);
        break;
    case CHAOS_CUT:
        is_made = chaos_cable_cut(&director->cable, span * CUT_MS);
        break;
    case CHAOS_PART:
        is_made = chaos_cable_part(&director->cable, director->page, span * REST_MS);
        break;
    case CHAOS_GROW:
        is_made = let_join(director);
        break;
    default:
        break;
    }
    atomic_fetch_add(is_made ? &director->page->made[fault] : &director->page->kept[fault], 1);
}

/* ---- what goes on beside ---- */

static void begin_commit(struct director *director)
{
    int next = atomic_load(&director->page->generation) + 1;

    atomic_store(&director->page->is_in[next % 16], 0);
    atomic_store(&director->page->is_out[next % 16], 0);
    atomic_store(&director->page->generation, next);
    director->committed_ns = hs_now_ns();
    director->wants_commit = false;
    if (director->in_commit < 0)
        return;
    hs_sleep_us(director->delay_us);
    int fault = director->in_commit;
    bool is_made = fault == CHAOS_KILL_IN_COMMIT
                       ? kill_one(director, director->victim, director->span_ns)
                       : stop_one(director, director->victim, director->span_ns);
    atomic_fetch_add(is_made ? &director->page->made[fault] : &director->page->kept[fault], 1);
    director->in_commit = -1;
}

static void let_go_on(struct director *director, bool all)
{
    int64_t now_ns = hs_now_ns();

    for (int r = 0; r < chaos_places(director->page); r++)
        if (all || (director->go_on_ns[r] && now_ns >= director->go_on_ns[r])) {
            (void)send_signal(director, r, SIGCONT);
            director->go_on_ns[r] = 0;
        }
}

/* Who comes asks somebody who serves: without one, there is nothing left to come to. */
static bool somebody_serves(struct director *director)
{
    int64_t now_ns = hs_now_ns();

    if (chaos_count_serving(director->page, true, true))
        director->served_ns = now_ns;
    return now_ns - director->served_ns < ALONE_MS * 1000000LL * hs_slow() ||
           HS_FAILED("no rank serves any more: the job has ended, and nobody can return to it");
}

/* A rank that does nothing for so long hangs. */
static bool nobody_hangs(const struct director *director)
{
    for (int r = 0; r < chaos_places(director->page); r++) {
        const struct chaos_rank_page *its = &director->page->ranks[r];
        int64_t still_ns = hs_now_ns() - atomic_load(&its->beat_ns);
        if (chaos_place(director->page, r) != CHAOS_DOWN && still_ns > chaos_patience_ns())
            return HS_FAILED("rank %d has been in \"%s\" for %.0f s, life %d", r,
                             atomic_load(&its->step) ? atomic_load(&its->step) : "start",
                             (double)still_ns / 1e9, atomic_load(&its->life));
    }
    return true;
}

static bool turn(struct director *director, bool makes_faults)
{
    int64_t now_ns = hs_now_ns();

    let_go_on(director, !makes_faults);
    if (!chaos_cable_turn(&director->cable, !makes_faults, false))
        return false;
    if (makes_faults && now_ns >= director->next_ns)
        make_fault(director);
    if (chaos_all_have_committed(director->page) &&
        (director->wants_commit || now_ns - director->committed_ns > COMMIT_EVERY_MS * 1000000LL))
        begin_commit(director);
    hs_sleep_us(TICK_US);
    return somebody_serves(director) && nobody_hangs(director) &&
           !atomic_load(&director->page->failed);
}

/* Everybody serves, and knows it. */
static bool is_whole(const struct director *director)
{
    if (!chaos_all_serve(director->page) || !chaos_all_have_committed(director->page))
        return false;
    for (int r = 0; r < chaos_places(director->page); r++)
        if (chaos_place(director->page, r) == CHAOS_SERVING &&
            atomic_load(&director->page->ranks[r].done) < 0)
            return false;
    return true;
}

/* It is never killed, and given up only if the hosts are cut in two and it is on the smaller
 * one. */
static int choose_keeper(const struct director *director)
{
    const struct chaos_page *page = director->page;
    const char *larger = chaos_cable_larger(&director->cable);
    int rank =
        (int)(hs_mix((uint64_t)hs_option_int(director->job, "--seed", 1)) % (uint64_t)page->size);

    while (larger && strcmp(page->ranks[rank].host, larger) != 0)
        rank = (rank + 1) % page->size;
    return rank;
}

static bool play(struct director *director, int64_t until_ns)
{
    struct chaos_page *its = director->page;
    int64_t give_up_ns = hs_now_ns() + chaos_patience_ns();

    while (!is_whole(director)) {
        if (atomic_load(&its->failed) || hs_now_ns() > give_up_ns)
            return HS_FAILED("the job has not begun");
        hs_sleep_us(TICK_US);
    }
    director->keeper = choose_keeper(director);
    director->next_ns = director->committed_ns = director->served_ns = hs_now_ns();
    until_ns += director->next_ns;
    while (hs_now_ns() < until_ns)
        if (!turn(director, true))
            return false;
    atomic_store(&its->over, 1);
    director->in_commit = -1;
    give_up_ns = hs_now_ns() + chaos_patience_ns();
    /* At least once: all may serve, and one be stopped. */
    do {
        if (!turn(director, false))
            return false;
        for (int r = 0; r < chaos_places(its) && hs_now_ns() > give_up_ns; r++)
            if (atomic_load(&its->ranks[r].has_begun) && chaos_place(its, r) != CHAOS_SERVING)
                return HS_FAILED(
                    "the job is not whole again: rank %d, life %d, place %d, in \"%s\"", r,
                    atomic_load(&its->ranks[r].life), chaos_place(its, r),
                    atomic_load(&its->ranks[r].step));
    } while (!is_whole(director) || director->cable.is_parted);
    atomic_store(&its->over, 2);
    return true;
}

/* All lives come to their ends; after a failure those that do not are ended here, so that the test
 * does not wait for them. */
static void await_ends(struct director *director)
{
    struct chaos_page *page = director->page;
    int64_t until_ns = 0;
    int pid, ended = 0;

    for (int r = 0; r < chaos_places(page); r++)
        while ((pid = atomic_load(&page->ranks[r].pid))) {
            if (!until_ns && !atomic_load(&page->failed) && !nobody_hangs(director))
                atomic_store(&page->failed, 1);
            if (!until_ns && atomic_load(&page->failed))
                until_ns = hs_now_ns() + LINGER_S * 1000000000LL * hs_slow();
            if (until_ns && hs_now_ns() >= until_ns && pid != ended) {
                HS_FAILED("rank %d does not end: it is killed, in \"%s\"", r,
                          atomic_load(&page->ranks[r].step));
                (void)send_signal(director, r, SIGKILL);
                ended = pid;
            }
            hs_sleep_us(TICK_US);
        }
}

void chaos_direct(const struct hs_job *job, struct chaos_page *page)
{
    int64_t seconds = hs_option_int(job, "--seconds", 2), began_ns = hs_now_ns();
    struct director director = {.job = job,
                                .page = page,
                                .dice = hs_mix((uint64_t)hs_option_int(job, "--seed", 1)),
                                .mean_ns = hs_option_int(job, "--mean-ms", 60) * 1000000LL,
                                .in_commit = -1};

    atomic_store(&page->began_ns, began_ns);
    if (!chaos_cable_open(&director.cable, job, page)) {
        atomic_store(&page->failed, 1);
        return;
    }
    if (!play(&director, seconds * 1000000000LL)) {
        chaos_report_ranks(page);
        let_go_on(&director, true);
        (void)chaos_cable_turn(&director.cable, true, true);
        atomic_store(&page->failed, 1);
    }
    await_ends(&director);
    chaos_report(job, page, (double)(hs_now_ns() - began_ns) / 1e9, director.keeper);
    if (director.cable.fd >= 0)
        close(director.cable.fd);
}
