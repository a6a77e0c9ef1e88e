/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement on links after the first commit. It differs from the first one: it concerns links to
 * returned ranks, ranks may be lost meanwhile, and a rank that has just returned is no reason for
 * others to fail. */
#ifndef STEPAF_WIREUP_AGREE_RETURN_H
#define STEPAF_WIREUP_AGREE_RETURN_H

#include "core/ctx.h"
#include "wireup/agree.h"

struct stepaf_agreement {
    struct stepaf_ctx *ctx;
    const struct stepaf_advert *adverts;
    size_t *offsets;
    int64_t began_ns;
    int64_t deadline_ns;
    stepaf_status_t own; /* of this rank: OK, INPROGRESS, or a failure, which is the last error */
    unsigned n_disputes;
    int wait_ms;
    int waits_for; /* the first rank whose links are not all up, by the last reports; -1: none */
    bool in_full;  /* reports have the transports that were taken */
    bool settled;  /* by the last reports both ends of each link have the same transport */
    int n_absent;  /* ranks without a report among the last: they are lost */
    int64_t patience_ns; /* until when members wait for who has returned; 0: nobody has */
    /* until when they do where only ranks that have returned have links that are not up; 0: others
     * have such links, or all links are up */
    int64_t pending_until_ns;
};

/* Return whether ranks return in this commit. */
bool stepaf_agree_has_news(const struct stepaf_ctx *ctx);
/* Return whether the link is one that ranks agree on. */
bool stepaf_agree_concerns(const struct stepaf_peer *peer);
/* Return whether members have waited long enough for links to ranks that have returned. That time
 * begins when both ends of each link have the same transport. */
bool stepaf_agree_has_waited(const struct stepaf_agreement *a);
/* Return whether members continue without a peer whose link fails, since the peer has only just
 * returned. */
bool stepaf_agree_may_give_up(const struct stepaf_agreement *a, uint32_t peer);
/* Return whether the rank's report among @a all counts. A rank that has just returned and reports a
 * failure is lost to the members, who all see the same report. */
bool stepaf_agree_hears(const struct stepaf_agreement *a, int rank, const uint8_t *all);
/* Mark as lost the ranks whose reports do not count. Return whether that is news. */
bool stepaf_agree_note_absent(struct stepaf_agreement *a, const uint8_t *all);
/* If this rank has only just returned, check that it reaches all ranks that count. If it does not,
 * this rank leaves, and not the one that the others reach. STEPAF_ERR_PEER_LOST. */
stepaf_status_t stepaf_agree_reaches(const struct stepaf_agreement *a, const uint8_t *all);
/* This rank, or one that it has met, was held up for @a ns: that time does not count as waited. Half of
 * what is left until the deadline stays. 0 or less: nothing changes. */
void stepaf_agree_allow_for(struct stepaf_agreement *a, int64_t ns);
/* Lose the returned ranks that report links which are not up, once the other ranks have waited for
 * nothing else during half of the time that was left: such a link joins two of them. */
void stepaf_agree_lose_pending(struct stepaf_agreement *a, const uint8_t *all);

#endif
