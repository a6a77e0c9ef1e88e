/* SPDX-License-Identifier: Apache-2.0 */
/* The director: when which fault is made, to whom; when all commit; and whether anybody hangs. */
#include <errno.h>
#include <fcntl.h>
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
    CUT_MS = 250, /* at most, and not one after the other: nobody notices */
    CUT_EVERY_MS = 1500,
    PART_MS = 6500 /* all do */
};

struct director {
    const struct hs_job *job;
    struct chaos_page *page;
    int keeper; /* a rank that is never killed: what it holds shows what grows */
    int cable;  /* descriptor; -1: no network to cut */
    uint64_t dice;
    int64_t next_ns, mean_ns, committed_ns;
    int64_t mended_ns; /* when the network is to be as it was; 0: it is */
    int64_t cut_ns;    /* when it was cut last */
    bool is_parted;
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

static int place_of(const struct director *director, int rank)
{
    return atomic_load(&director->page->ranks[rank].place);
}

static int count_serving(const struct director *director, bool attention, bool ffn)
{
    int n = 0;

    for (int r = 0; r < chaos_places(director->page); r++)
        n += place_of(director, r) == CHAOS_SERVING &&
             (chaos_is_attention(director->page, r) ? attention : ffn);
    return n;
}

static int count_begun(const struct director *director)
{
    int n = 0;

    for (int r = 0; r < chaos_places(director->page); r++)
        n += atomic_load(&director->page->ranks[r].has_begun);
    return n;
}

static bool all_serve(const struct director *director)
{
    return count_serving(director, true, true) == count_begun(director);
}

/* More than half have to be left, and one of each role. */
static bool may_die(const struct director *director, int rank)
{
    bool is_attention = chaos_is_attention(director->page, rank);
    int of_role = count_serving(director, is_attention, !is_attention);
    int all = count_serving(director, true, true), begun = count_begun(director);

    return rank != director->keeper && place_of(director, rank) == CHAOS_SERVING &&
           !director->is_parted && of_role > 1 && begun - all < (begun - 1) / 2;
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
        if (place_of(director, r) == CHAOS_COMING && atomic_load(&director->page->ranks[r].life)) {
            atomic_store(&director->page->ranks[r].restart_ns, hs_now_ns() + 1000000);
            return send_signal(director, r, SIGKILL);
        }
    return false;
}

static bool stop_one(struct director *director, int rank, int64_t span_ns)
{
    if (place_of(director, rank) == CHAOS_DOWN || director->go_on_ns[rank] ||
        !send_signal(director, rank, SIGSTOP))
        return false;
    director->go_on_ns[rank] = hs_now_ns() + span_ns;
    return true;
}

/* The next new rank, of one role and the other in turn. */
static bool let_join(struct director *director)
{
    struct chaos_page *page = director->page;

    if (director->is_parted)
        return false;
    for (int i = 0; i < page->room; i++) {
        int r = page->size + (i % 2) * (page->room / 2) + i / 2;
        if (!atomic_exchange(&page->ranks[r].has_begun, 1))
            return true;
    }
    return false;
}

static bool tell_cable(struct director *director, const char *text, int64_t span_ns)
{
    size_t bytes = strlen(text);

    if (director->cable < 0 || director->mended_ns)
        return false;
    if (write(director->cable, text, bytes) != (ssize_t)bytes)
        return HS_FAILED("the cable does not hear: %s", strerror(errno));
    director->mended_ns = hs_now_ns() + span_ns;
    return true;
}

/* Both halves will lose each other, unless some rank is down already: then it would be too many. */
static bool part_hosts(struct director *director)
{
    if (director->cable < 0 || director->mended_ns || !all_serve(director))
        return false;
    for (int r = 0; r < chaos_places(director->page); r++)
        atomic_fetch_add(&director->page->ranks[r].faults, 1);
    director->is_parted = tell_cable(director, "cut\n", PART_MS * 1000000LL);
    return director->is_parted;
}

/* The draws are the same whatever has come of those before. */
static void make_fault(struct director *director)
{
    uint64_t total = 0, at;
    int fault = 0, size = chaos_places(director->page);
    bool is_made = false;
    char text[32];

    for (int i = 0; i < CHAOS_N_FAULTS; i++)
        total += (uint64_t)(fault_is_on_net[i] && director->cable < 0 ? 0 : fault_weights[i]);
    at = chaos_draw(&director->dice, total);
    int rank = (int)chaos_draw(&director->dice, (uint64_t)size);
    int64_t span = (int64_t)chaos_draw(&director->dice, 1000000); /* of a million */
    int64_t delay_us = (int64_t)chaos_draw(&director->dice, 15000);
    director->next_ns += (int64_t)chaos_draw(&director->dice, (uint64_t)director->mean_ns * 2);
    for (;; fault++) {
        uint64_t weight =
            (uint64_t)(fault_is_on_net[fault] && director->cable < 0 ? 0 : fault_weights[fault]);
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
        snprintf(text, sizeof(text), "%lld\n", (long long)(span * SLOW_US / 1000000));
        is_made = tell_cable(director, text, delay_us * SLOW_MS * 1000000LL / 15000);
        break;
    case CHAOS_CUT:
        is_made = hs_now_ns() - director->cut_ns > CUT_EVERY_MS * 1000000LL &&
                  tell_cable(director, "cut\n", span * CUT_MS);
        director->cut_ns = is_made ? hs_now_ns() : director->cut_ns;
        break;
    case CHAOS_PART:
        is_made = part_hosts(director);
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

/* All that serve have done the last commit. */
static bool all_have_committed(const struct director *director)
{
    int generation = atomic_load(&director->page->generation);

    for (int r = 0; r < chaos_places(director->page); r++)
        if (place_of(director, r) == CHAOS_SERVING &&
            atomic_load(&director->page->ranks[r].done) < generation)
            return false;
    return true;
}

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
    if (director->mended_ns && (all || now_ns >= director->mended_ns)) {
        director->mended_ns = 0;
        (void)tell_cable(director, "0\n", 0);
        director->mended_ns = 0;
        director->is_parted = director->is_parted && !all && !all_serve(director);
    }
    if (director->is_parted && !director->mended_ns && all_serve(director))
        director->is_parted = false; /* those that were given up are back */
}

/* A rank that does nothing for so long hangs. */
static bool nobody_hangs(const struct director *director)
{
    for (int r = 0; r < chaos_places(director->page); r++) {
        const struct chaos_rank_page *its = &director->page->ranks[r];
        int64_t still_ns = hs_now_ns() - atomic_load(&its->beat_ns);
        if (place_of(director, r) != CHAOS_DOWN &&
            still_ns > CHAOS_HANG_S * 1000000000LL * hs_slow())
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
    if (makes_faults && now_ns >= director->next_ns)
        make_fault(director);
    if (all_have_committed(director) &&
        (director->wants_commit || now_ns - director->committed_ns > COMMIT_EVERY_MS * 1000000LL))
        begin_commit(director);
    hs_sleep_us(TICK_US);
    return nobody_hangs(director) && !atomic_load(&director->page->failed);
}

/* Everybody serves, and knows it. */
static bool is_whole(const struct director *director)
{
    if (!all_serve(director) || !all_have_committed(director))
        return false;
    for (int r = 0; r < chaos_places(director->page); r++)
        if (place_of(director, r) == CHAOS_SERVING &&
            atomic_load(&director->page->ranks[r].done) < 0)
            return false;
    return true;
}

static bool play(struct director *director, int64_t until_ns)
{
    struct chaos_page *its = director->page;
    int64_t give_up_ns = hs_now_ns() + CHAOS_HANG_S * 1000000000LL * hs_slow();

    while (!is_whole(director)) {
        if (atomic_load(&its->failed) || hs_now_ns() > give_up_ns)
            return HS_FAILED("the job has not begun");
        hs_sleep_us(TICK_US);
    }
    director->next_ns = director->committed_ns = hs_now_ns();
    until_ns += director->next_ns;
    while (hs_now_ns() < until_ns)
        if (!turn(director, true))
            return false;
    atomic_store(&its->over, 1);
    director->in_commit = -1;
    give_up_ns = hs_now_ns() + CHAOS_HANG_S * 1000000000LL * hs_slow();
    while (!is_whole(director)) {
        if (!turn(director, false))
            return false;
        for (int r = 0; r < chaos_places(its) && hs_now_ns() > give_up_ns; r++)
            if (atomic_load(&its->ranks[r].has_begun) && place_of(director, r) != CHAOS_SERVING)
                return HS_FAILED(
                    "the job is not whole again: rank %d, life %d, place %d, in \"%s\"", r,
                    atomic_load(&its->ranks[r].life), place_of(director, r),
                    atomic_load(&its->ranks[r].step));
    }
    atomic_store(&its->over, 2);
    return true;
}

void chaos_direct(const struct hs_job *job, struct chaos_page *page)
{
    const char *path = hs_option_text(job, "--cable", NULL);
    int64_t seconds = hs_option_int(job, "--seconds", 2), began_ns = hs_now_ns();
    struct director director = {.job = job,
                                .page = page,
                                .cable = path ? open(path, O_WRONLY | O_CLOEXEC) : -1,
                                .dice = hs_mix((uint64_t)hs_option_int(job, "--seed", 1)),
                                .mean_ns = hs_option_int(job, "--mean-ms", 60) * 1000000LL,
                                .in_commit = -1};

    if (path && !HS_TRUE(director.cable >= 0))
        return;
    director.keeper =
        (int)(hs_mix((uint64_t)hs_option_int(job, "--seed", 1)) % (uint64_t)job->size);
    if (!play(&director, seconds * 1000000000LL)) {
        let_go_on(&director, true);
        atomic_store(&page->failed, 1);
    }
    for (int r = 0; r < chaos_places(page); r++)
        while (place_of(&director, r) != CHAOS_DOWN && !atomic_load(&page->failed) &&
               nobody_hangs(&director))
            hs_sleep_us(TICK_US);
    chaos_report(job, page, (double)(hs_now_ns() - began_ns) / 1e9, director.keeper);
    if (director.cable >= 0)
        close(director.cable);
}
