/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that come later: shared by the files of the test. */
#ifndef STEPAF_TEST_GROW_H
#define STEPAF_TEST_GROW_H

#include "member_ops.h"

enum { GROW_LIMIT_S = 30 };

/* Places in the shared page. */
enum {
    STAMP_MET = 1, /* ranks that have come to a meeting, ever */
    STAMP_OPS,     /* attention ranks that are through, ever */
    STAMP_MAY_COME,
    STAMP_COMMIT,
    STAMP_VAIN,      /* processes that have been turned away */
    STAMP_FIRST_USE, /* of each life, the longest time from init to the first operation */
    STAMP_ADDRESS = 32
};

struct rank {
    struct hs_job *job;
    int64_t met, ops; /* what the stamps are to come to */
    int64_t began_ns; /* of a new process: its init */
    int life;         /* of a new process, from 0 on; -1: it has been there from the beginning */
    int n_works; /* calls of grow_work before this one, of those who have been there all the time */
};

/* ---- grow_work.c, and grow_streams.c of a program of its own: the operations ---- */

/* Before there is a context; and its end. */
void grow_begin(const struct rank *rank);
void grow_end(const struct rank *rank);
/* Declare keys, allocate memory and make plans, for the next commit. */
bool grow_prepare(const struct rank *rank);
/* Some operations of @a n ranks of either role: those that have been there from the beginning, or
 * all. */
bool grow_work(struct rank *rank, int n);
/* Have this process's next context be one that is not reached as it is expected to be. */
void grow_go_wrong(bool is_wrong);

/* ---- grow.c ---- */

/* A new rank has been used. */
void grow_note_first_use(struct rank *rank);

#endif
