/* SPDX-License-Identifier: Apache-2.0 */
/* The network between two hosts: slow, cut for less than it takes to notice, or cut in two halves
 * until both have noticed.
 *
 * Of two halves the one goes on that has more than half of the last epoch's members, or half of
 * them with the first. It may be that none has: of 10 members, 5 on each host, one is dead and
 * nobody has taken it out yet. Then the job ends, and that is right, but it is not what chaos is
 * for. So the network is cut in two only while all serve, and only if the larger half keeps more
 * than half of the members, and both roles, though CHAOS_SPARE of its ranks die.
 *
 * It is mended when both have noticed, and not before. Who is lost to a rank it tells others for
 * good: if the halves heard each other again while some have given up some, the job might end as
 * well. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "chaos.h"

enum { CUT_EVERY_MS = 1500 }; /* at least: not one after the other, that nobody notices */

bool chaos_cable_open(struct chaos_cable *cable, const struct hs_job *job,
                      const struct chaos_page *page)
{
    const char *path = hs_option_text(job, "--cable", NULL);

    *cable = (struct chaos_cable){.page = page,
                                  .speaks = hs_option_int(job, "--report", 0) != 0,
                                  .fd = path ? open(path, O_WRONLY | O_CLOEXEC) : -1};
    return !path || HS_TRUE(cable->fd >= 0);
}

static bool tell_cable(struct chaos_cable *cable, const char *text, int64_t span_ns)
{
    size_t bytes = strlen(text);

    if (cable->fd < 0 || cable->mended_ns)
        return false;
    if (write(cable->fd, text, bytes) != (ssize_t)bytes)
        return HS_FAILED("the cable does not hear: %s", strerror(errno));
    cable->mended_ns = hs_now_ns() + span_ns;
    return true;
}

bool chaos_cable_slow(struct chaos_cable *cable, int64_t us, int64_t span_ns)
{
    char text[32];

    snprintf(text, sizeof(text), "%lld\n", (long long)us);
    return tell_cable(cable, text, span_ns);
}

bool chaos_cable_cut(struct chaos_cable *cable, int64_t span_ns)
{
    char text[32];

    snprintf(text, sizeof(text), "cut %lld\n", (long long)span_ns / 1000000);
    if (hs_now_ns() - cable->cut_ns <= CUT_EVERY_MS * 1000000LL ||
        !tell_cable(cable, text, span_ns))
        return false;
    cable->cut_ns = hs_now_ns();
    return true;
}

/* ---- halves ---- */

static bool is_on(const struct chaos_page *page, int rank, const char *host)
{
    return strcmp(page->ranks[rank].host, host) == 0;
}

static int count_on(const struct chaos_page *page, const char *host, bool attention, bool ffn)
{
    int n = 0;

    for (int r = 0; r < chaos_places(page); r++)
        n += chaos_place(page, r) == CHAOS_SERVING && is_on(page, r, host) &&
             (chaos_is_attention(page, r) ? attention : ffn);
    return n;
}

const char *chaos_cable_larger(const struct chaos_cable *cable)
{
    const struct chaos_page *page = cable->page;
    const char *host = page->ranks[0].host;
    int n = count_on(page, host, true, true);

    for (int r = 1; r < page->size; r++)
        if (!is_on(page, r, page->ranks[0].host))
            return count_on(page, page->ranks[r].host, true, true) > n ? page->ranks[r].host : host;
    return NULL;
}

/* As the members count: each two, and the first three. */
static bool keeps_majority(const struct chaos_page *page, const char *larger)
{
    int all = chaos_count_serving(page, true, true);
    int left = count_on(page, larger, true, true) - CHAOS_SPARE;

    return 2 * 2 * left > 2 * all + 1 && count_on(page, larger, true, false) > CHAOS_SPARE &&
           count_on(page, larger, false, true) > CHAOS_SPARE;
}

static int last_epoch(const struct chaos_page *page)
{
    int last = 0;

    for (int r = 0; r < chaos_places(page); r++) {
        int its = atomic_load(&page->ranks[r].epoch);
        last = its > last ? its : last;
    }
    return last;
}

static void say_halves(const struct chaos_cable *cable, const char *what)
{
    const struct chaos_page *page = cable->page;
    const char *larger = chaos_cable_larger(cable);
    int all = chaos_count_serving(page, true, true), n = count_on(page, larger, true, true);
    int64_t now_ns = hs_now_ns();

    if (!cable->speaks)
        return;
    printf("%.1f s: cut %d in two halves, %s after %.1f s: of %d members of epoch %d, %s has %d "
           "and the "
           "other host %d\n",
           (double)(now_ns - atomic_load(&page->began_ns)) / 1e9, cable->n_parted, what,
           (double)(now_ns - cable->parted_ns) / 1e9, all, last_epoch(page), larger, n, all - n);
    fflush(stdout);
}

bool chaos_cable_part(struct chaos_cable *cable, struct chaos_page *page, int64_t rest_ns)
{
    const char *larger = chaos_cable_larger(cable);

    if (!larger || cable->is_parted || !chaos_all_serve(page) || !keeps_majority(page, larger))
        return false;
    uint64_t lesser = 0;
    for (int r = 0; r < chaos_places(page); r++)
        if (chaos_place(page, r) == CHAOS_SERVING && !is_on(page, r, larger))
            lesser |= (uint64_t)1 << r;
    if (!tell_cable(cable, "cut\n", 0))
        return false;
    for (int r = 0; r < chaos_places(page); r++) {
        cable->lives[r] = atomic_load(&page->ranks[r].life);
        atomic_fetch_add(&page->ranks[r].faults, (int)(lesser >> r & 1));
    }
    cable->mended_ns = INT64_MAX;
    cable->lesser = lesser;
    cable->rest_ns = rest_ns;
    cable->parted_ns = hs_now_ns();
    cable->generation = atomic_load(&page->generation);
    cable->is_parted = true;
    cable->is_noticed = false;
    cable->n_parted++;
    say_halves(cable, "made");
    return true;
}

/* The smaller half has ended, and the larger one has done a commit that was begun without it. */
static bool have_noticed(const struct chaos_cable *cable)
{
    const struct chaos_page *page = cable->page;

    for (int r = 0; r < chaos_places(page); r++)
        if (cable->lesser >> r & 1 && chaos_place(page, r) == CHAOS_SERVING &&
            atomic_load(&page->ranks[r].life) == cable->lives[r])
            return false;
    return atomic_load(&page->generation) > cable->generation && chaos_all_have_committed(page);
}

bool chaos_cable_turn(struct chaos_cable *cable, bool at_once, bool anyway)
{
    int64_t now_ns = hs_now_ns();

    if (cable->is_parted && !cable->is_noticed && !anyway) {
        cable->is_noticed = have_noticed(cable);
        if (!cable->is_noticed)
            return now_ns - cable->parted_ns < chaos_patience_ns() ||
                   HS_FAILED("the network is cut in two, and not both halves have noticed");
        cable->mended_ns = now_ns + cable->rest_ns;
        say_halves(cable, "noticed");
    }
    if (cable->mended_ns && (at_once || anyway || now_ns >= cable->mended_ns)) {
        cable->mended_ns = 0;
        (void)tell_cable(cable, "0\n", 0);
        cable->mended_ns = 0;
    }
    if (cable->is_parted && !cable->mended_ns && chaos_all_serve(cable->page)) {
        cable->is_parted = false; /* those that were given up are back */
        say_halves(cable, "whole again");
    }
    return true;
}
