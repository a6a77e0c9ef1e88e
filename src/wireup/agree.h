/* SPDX-License-Identifier: Apache-2.0 */
/* The blobs by which ranks agree on their links: what each reports of its own. Pure: no I/O, and no
 * blob is trusted. */
#ifndef STEPAF_WIREUP_AGREE_H
#define STEPAF_WIREUP_AGREE_H

#include "base/error.h"
#include "base/pack.h"

/* What one rank reports. */
struct stepaf_agree_report {
    stepaf_status_t status; /* a failure: nothing else counts then */
    char text[STEPAF_ERROR_TEXT_MAX];
    bool pending;         /* some links that it has begun are not up */
    uint64_t sum;         /* over its links; that of all ranks is 0 where all ends agree */
    uint32_t n_taken;     /* 0: not asked for */
    const uint8_t *taken; /* for each peer, its transport, as the peer counts them */
};

/* What a link of two ranks adds to the sum at its attention rank, and subtracts at its FFN rank. */
uint64_t stepaf_agree_link(int attention, int ffn, const char *transport);

void stepaf_agree_pack(const struct stepaf_agree_report *report, struct stepaf_pack *pack);
/* False: it is malformed. report_p->taken points into the blob. */
bool stepaf_agree_read(const void *blob, size_t bytes, struct stepaf_agree_report *report_p);

#endif
