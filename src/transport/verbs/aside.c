/* SPDX-License-Identifier: Apache-2.0 */
/* Process send completions without processing received messages. While a commit waits for other
 * ranks, links are not read, however long the wait: a rank that is already in the next epoch may
 * have written. But a completion queue holds both kinds, and the acknowledgements of peers must be
 * seen, or the peers would be taken for dead. */
#include <stdlib.h>

#include "transport/verbs/verbs.h"

enum { TAKEN_AT_ONCE = 16 };

static bool make_room_aside(struct stepaf_verbs_aside *aside)
{
    if (aside->room - aside->n >= TAKEN_AT_ONCE)
        return true;
    unsigned room = 2 * aside->room + TAKEN_AT_ONCE;
    struct ibv_wc *more = realloc(aside->wc, room * sizeof(*more));
    if (!more)
        return false;
    aside->wc = more;
    aside->room = room;
    return true;
}

/* Without memory to keep the receive completions, all completions stay in the queue. */
void stepaf_verbs_sends_note(struct stepaf_verbs *verbs)
{
    struct stepaf_verbs_aside *aside = &verbs->aside;
    struct ibv_wc wc[TAKEN_AT_ONCE];

    for (unsigned r = 0; r < verbs->n_rails; r++) {
        int got = TAKEN_AT_ONCE;
        while (got == TAKEN_AT_ONCE && make_room_aside(aside)) {
            got = verbs->provider->poll_cq(verbs->rails[r].cq, TAKEN_AT_ONCE, wc);
            for (int i = 0; i < got; i++)
                if (wc[i].wr_id & stepaf_verbs_is_receive)
                    aside->wc[aside->n++] = wc[i];
                else
                    (void)stepaf_verbs_take(verbs, &wc[i]);
        }
    }
    verbs->due = verbs->due || aside->n;
}

void stepaf_verbs_aside_take_of(struct stepaf_verbs_link *link)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct stepaf_verbs_aside *aside = &verbs->aside;
    unsigned kept = 0;

    for (unsigned i = 0; i < aside->n; i++) {
        const struct ibv_wc wc = aside->wc[i];
        if (stepaf_verbs_peer_of(wc.wr_id) == link->base.peer)
            (void)stepaf_verbs_take(verbs, &wc);
        else
            aside->wc[kept++] = wc;
    }
    aside->n = kept;
}

unsigned stepaf_verbs_aside_take(struct stepaf_verbs *verbs)
{
    struct stepaf_verbs_aside aside = verbs->aside;
    unsigned n = 0;

    verbs->aside = (struct stepaf_verbs_aside){0};
    for (unsigned i = 0; i < aside.n; i++)
        n += stepaf_verbs_take(verbs, &aside.wc[i]);
    free(aside.wc);
    return n;
}
