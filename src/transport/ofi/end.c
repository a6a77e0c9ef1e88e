/* SPDX-License-Identifier: Apache-2.0 */
/* Ends that both sides agree on. verbs;ofi_rxm (1.17) ends the process if its endpoint closes while
 * a peer's write has arrived that has not been read, or if it reads one after the peer has closed:
 * it then posts its receive again on a connection that is gone. Therefore each side says by a
 * second hello that it writes nothing more, and answers the other's. Before it closes, it waits a
 * little for those of its peers. Then it gives the peers, which poll all the time, a moment to read
 * its last writes. */
#include <string.h>
#include <time.h>

#include "base/time.h"
#include "transport/ofi/ofi.h"

enum { ALIVE_MS = 1000, DEAD_MS = 100, LAST_MS = 200 };

bool stepaf_ofi_ends_together(const struct fi_info *info)
{
    return !strcmp(info->fabric_attr->prov_name, "verbs;ofi_rxm");
}

static void say_end(struct stepaf_ofi_link *link)
{
    struct stepaf_ofi *ofi = (struct stepaf_ofi *)link->shared.base.transport;

    if (link->says_end)
        return;
    link->says_end = stepaf_ofi_control(&link->shared, STEPAF_FABRIC_HELLO);
    if (link->says_end)
        ofi->end_said_ns = stepaf_monotonic_ns();
}

/* Note that the peer writes nothing more. */
static void take_end(struct stepaf_ofi_link *link)
{
    const struct stepaf_ofi *ofi = (const struct stepaf_ofi *)link->shared.base.transport;

    link->is_over = true;
    if (ofi->ends_together && link->shared.proof.state == STEPAF_FABRIC_PROVEN)
        say_end(link);
}

void stepaf_ofi_note_hellos(struct stepaf_ofi_link *link)
{
    uint8_t all = stepaf_ofi_all_paths(link);

    link->shared.proof.here = link->n_paths && (link->hellos & all) == all;
}

bool stepaf_ofi_take_hello(struct stepaf_ofi_link *link, uint32_t path)
{
    if (path >= STEPAF_OFI_RAILS)
        return false;
    uint8_t bit = (uint8_t)(1u << path), all = stepaf_ofi_all_paths(link);
    if (link->hellos & bit)
        link->farewells |= bit;
    link->hellos |= bit;
    stepaf_ofi_note_hellos(link);
    if (link->shared.proof.here && (link->farewells & all) == all)
        take_end(link);
    return true;
}

/* Return for how long to wait for a link; 0: it is over. A dead link may be that of a peer that
 * closes as well, and will say so, or of one that is gone. */
static int wait_ms(struct stepaf_ofi_link *link)
{
    if (link->shared.proof.state != STEPAF_FABRIC_PROVEN)
        return 0;
    if (!link->shared.base.dead || link->is_over) /* also if there was no space for the answer */
        say_end(link);
    if (link->is_over && !link->shared.control.pending)
        return 0;
    return link->shared.base.dead ? DEAD_MS : ALIVE_MS;
}

void stepaf_ofi_end(struct stepaf_ofi *ofi)
{
    int64_t since = stepaf_monotonic_ns();
    int longest;

    if (!ofi->ends_together)
        return;
    do {
        longest = 0;
        for (uint32_t i = 0; i < ofi->shared.n_senders; i++) {
            int ms = wait_ms(stepaf_ofi_sender(ofi, i));
            longest = ms > longest ? ms : longest;
        }
        ofi->shared.calls->set_aside(&ofi->shared);
    } while (longest && stepaf_monotonic_ns() - since < longest * 1000000LL);
    int64_t left_ns = ofi->end_said_ns + LAST_MS * INT64_C(1000000) - stepaf_monotonic_ns();
    if (ofi->end_said_ns && left_ns > 0)
        (void)nanosleep(&(struct timespec){0, (long)left_ns}, NULL);
}
