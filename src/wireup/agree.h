/* SPDX-License-Identifier: Apache-2.0 */
/* The reports by which ranks agree on their links: each rank reports its own links. Pure: no I/O,
 * and no blob is trusted. */
#ifndef STEPAF_WIREUP_AGREE_H
#define STEPAF_WIREUP_AGREE_H

#include "base/error.h"
#include "base/pack.h"

/* The report of one rank. */
struct stepaf_agree_report {
    stepaf_status_t status; /* a failure: nothing else is valid then */
    char text[STEPAF_ERROR_TEXT_MAX];
    bool pending;         /* some links that the rank has begun are not up */
    uint64_t sum;         /* over its links; the sum over all ranks is 0 if all ends agree */
    uint32_t left_ms;     /* until the deadline of its commit, from when it was written */
    uint32_t n_taken;     /* 0: not asked for */
    const uint8_t *taken; /* by peer: the transport taken, in the numbering of the peer */
};

/* Return what a link of two ranks adds to the sum at its attention rank, and subtracts at its FFN
 * rank. */
uint64_t stepaf_agree_link(int attention, int ffn, const char *transport);

void stepaf_agree_pack(const struct stepaf_agree_report *report, struct stepaf_pack *pack);
/* Read a report. report_p->taken points into the blob. Return false if it is malformed. */
bool stepaf_agree_read(const void *blob, size_t bytes, struct stepaf_agree_report *report_p);

#endif
