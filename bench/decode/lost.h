/* SPDX-License-Identifier: Apache-2.0 */
/* Words for what goes wrong between ranks, the same on every rank that tells of it. */
#ifndef DECODE_LOST_H
#define DECODE_LOST_H

#include <stepaf/stepaf.h>

#include "reason.h"

/* How a rank ended, when it did not end well. */
struct trouble {
    struct reason reason;
    int lost; /* world rank that is lost or does not answer; -1: none, it is this rank's own */
};

/* Fill *trouble_p for rank @a world, and return -1. */
int trouble_lost(stepaf_context_h ctx, int world, struct trouble *trouble_p);
int trouble_silent(stepaf_context_h ctx, int world, int64_t timeout_us, struct trouble *trouble_p);

/* Fill *trouble_p from the last failed call, which returned @a status, and return -1. @a what
 * says what it was for, @a timeout_us how long it could wait. */
int trouble_status(stepaf_context_h ctx, stepaf_status_t status, const char *what,
                   int64_t timeout_us, struct trouble *trouble_p);

/* The same for something that a peer has sent. */
int trouble_malformed(stepaf_context_h ctx, int world, const char *what, struct trouble *trouble_p);

#endif
