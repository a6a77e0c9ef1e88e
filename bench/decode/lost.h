/* SPDX-License-Identifier: Apache-2.0 */
/* Messages for failures between ranks, the same on every rank that reports one. */
#ifndef DECODE_LOST_H
#define DECODE_LOST_H

#include <stepaf/stepaf.h>

#include "reason.h"

/* Why a rank failed. */
struct trouble {
    struct reason reason;
    int lost; /* world rank that is lost or does not answer; -1: none, this rank's own */
};

/* Fill *trouble_p for rank @a world, and return -1. */
int trouble_lost(stepaf_context_h ctx, int world, struct trouble *trouble_p);
int trouble_silent(stepaf_context_h ctx, int world, int64_t timeout_us, struct trouble *trouble_p);

/* Fill *trouble_p from the last failed call, which returned @a status, and return -1. @a what
 * names its purpose, @a timeout_us is its time limit. */
int trouble_status(stepaf_context_h ctx, stepaf_status_t status, const char *what,
                   int64_t timeout_us, struct trouble *trouble_p);

/* The same for data that a peer has sent. */
int trouble_malformed(stepaf_context_h ctx, int world, const char *what, struct trouble *trouble_p);

#endif
