/* SPDX-License-Identifier: Apache-2.0 */
/* An FFN rank's list of the attention ranks: which are at work, have stopped, or are gone. */
#ifndef DECODE_ROLL_H
#define DECODE_ROLL_H

#include <stdint.h>

#include "reason.h"

struct roll_entry {
    int64_t heard_ns; /* time of its last message */
    int stopped;      /* has no more rows */
    int gone;         /* has said good-bye, or is lost */
    int held;         /* has nothing in flight, and will commit */
};

struct roll {
    struct roll_entry *entries;
    int n;
    int n_stopped;
    int n_gone;
    int n_held;
};

int roll_create(int n, struct roll *roll_p, struct reason *reason);
void roll_destroy(struct roll *roll);

void roll_heard(struct roll *roll, int rank, int64_t now_ns);
void roll_stop(struct roll *roll, int rank);
void roll_leave(struct roll *roll, int rank);

/* Note that it will commit; returns whether all have, at @a now_ns. */
void roll_hold(struct roll *roll, int rank);
void roll_resume(struct roll *roll, int64_t now_ns);

/* Return a rank at work with no message since @a since_ns; -1 if there is none. */
int roll_silent(const struct roll *roll, int64_t since_ns);

#endif
