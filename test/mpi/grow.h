/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that join later: shared by the files of the test. */
#ifndef STEPAF_TEST_GROW_H
#define STEPAF_TEST_GROW_H

#include "member_ops.h"

enum { GROW_LIMIT_S = 30 };

/* Entries of the shared page. */
enum {
    STAMP_MET = 1, /* ranks that have arrived at a meeting, total */
    STAMP_OPS,     /* attention ranks that have finished, total */
    STAMP_MAY_COME,
    STAMP_COMMIT,
    STAMP_VAIN,      /* processes that have been rejected */
    STAMP_FIRST_USE, /* of each life, the longest time from init to the first operation */
    STAMP_ADDRESS = 32
};

struct rank {
    struct hs_job *job;
    int64_t met, ops; /* expected values of the stamps */
    int64_t began_ns; /* of a new process: its init */
    int life;         /* of a new process, from 0 on; -1: present from the beginning */
    int n_works;      /* earlier calls of grow_work, for ranks present all the time */
};

/* ---- grow_work.c, and grow_streams.c of a program of its own: the operations ---- */

/* Call before there is a context; and at its end. */
void grow_begin(const struct rank *rank);
void grow_end(const struct rank *rank);
/* Declare keys, allocate memory and make plans, for the next commit. */
bool grow_prepare(const struct rank *rank);
/* Run some operations of @a n ranks of either role: those present from the beginning, or all. */
bool grow_work(struct rank *rank, int n);
/* Make this process's next context one that is not reached as expected. */
void grow_go_wrong(bool is_wrong);

/* ---- grow.c ---- */

/* Count that a new rank has been used. */
void grow_note_first_use(struct rank *rank);

#endif
