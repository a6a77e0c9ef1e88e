/* SPDX-License-Identifier: Apache-2.0 */
/* Post receives, and report to the peer how many there are. */
#include <string.h>

#include "transport/verbs/verbs.h"

void stepaf_verbs_receives_make(struct stepaf_verbs *verbs)
{
    struct stepaf_verbs_receives *forms = &verbs->forms;

    for (unsigned i = 0; i < STEPAF_VERBS_REFILL; i++) {
        forms->place[i].length = sizeof(struct stepaf_verbs_slot);
        forms->receive[i] = (struct ibv_recv_wr){
            .next = i + 1 < STEPAF_VERBS_REFILL ? &forms->receive[i + 1] : NULL,
            .sg_list = &forms->place[i],
        };
    }
}

int stepaf_verbs_refill(struct stepaf_verbs_link *link, const struct stepaf_verbs_path *path,
                        uint32_t n)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    struct ibv_recv_wr *first = verbs->forms.receive, *bad;
    struct stepaf_verbs_slot *ring = path->ring ? path->ring : link->paths[0].ring;
    uint64_t id = stepaf_verbs_is_receive | path->wr_id;
    uint32_t at = path->rx.refilled;
    /* Only sent messages, which arrive on a rail's first path, carry data, but soft-iWARP always
     * requires a place. */
    bool has_place = path->rail->imm ? path->rail->iwarp : path->ring || path->rail->iwarp;
    int error = 0;

    while (n && !error) {
        uint32_t some = n < STEPAF_VERBS_REFILL ? n : STEPAF_VERBS_REFILL;
        for (uint32_t i = 0; i < some; i++) {
            first[i].wr_id = id;
            first[i].num_sge = has_place;
        }
        for (uint32_t i = 0; has_place && i < some; i++, at++) {
            verbs->forms.place[i].addr = (uintptr_t)&ring[at & (verbs->qp.receives - 1)];
            verbs->forms.place[i].lkey = path->rail->control_mr->lkey;
        }
        first[some - 1].next = NULL;
        error = verbs->provider->post_recv(path->qp, first, &bad);
        first[some - 1].next = &first[some];
        n -= some;
    }
    return error < 0 ? -error : error;
}

void stepaf_verbs_give_back(struct stepaf_verbs_link *link, struct stepaf_verbs_path *path)
{
    struct stepaf_verbs *verbs = stepaf_verbs_of(link);
    uint32_t n = path->rx.next - path->rx.refilled;

    if (__builtin_expect(n < verbs->qp.refill_from, 1) || path->closed)
        return;
    int error = stepaf_verbs_refill(link, path, n);
    if (error) {
        stepaf_verbs_path_lost(link, path, "posting receives: %s", strerror(error));
        return;
    }
    path->rx.refilled += n;
    if (!stepaf_verbs_tell(link, path, false) && !link->base.dead)
        verbs->due = true;
}
