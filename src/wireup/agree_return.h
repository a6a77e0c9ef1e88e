/* SPDX-License-Identifier: Apache-2.0 */
/* What is other where ranks agree on links behind the first commit: then it is about those to ranks
 * that have returned, ranks may be lost meanwhile, and who has just returned is no reason for
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
};

/* Whether this commit has ranks return. */
bool stepaf_agree_has_news(const struct stepaf_ctx *ctx);
/* Whether the link is one of those that ranks agree on. */
bool stepaf_agree_concerns(const struct stepaf_peer *peer);
/* Whether members go on without the peer, whose link does not come about: it has only just
 * returned. It is cut then. */
bool stepaf_agree_give_up(const struct stepaf_agreement *a, uint32_t peer, const char *reason);
/* Whether the rank's report, of all that have come, counts: one that has just returned, and reports
 * a failure, is lost to the members, who all see the same. */
bool stepaf_agree_hears(const struct stepaf_agreement *a, int rank, const uint8_t *all);
/* Who is not heard is lost; whether that is news. */
bool stepaf_agree_note_absent(struct stepaf_agreement *a, const uint8_t *all);
/* This rank has only just returned: whether it reaches all that have been heard. If it does not, it
 * goes itself, and not the one that the others reach. STEPAF_ERR_PEER_LOST. */
stepaf_status_t stepaf_agree_reaches(const struct stepaf_agreement *a, const uint8_t *all);

#endif
