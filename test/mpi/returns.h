/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that return: shared by the files of the test. */
#ifndef STEPAF_TEST_RETURNS_H
#define STEPAF_TEST_RETURNS_H

#include "member_ops.h"

enum { RETURNS_BYTES = 3000, RETURNS_LIMIT_S = 30, RETURNS_HAS_LEFT = 9 /* exit status */ };

/* Entries of the shared page; 0 is the time of the last death. */
enum {
    STAMP_MET = 1,   /* ranks that have come to a meeting, ever */
    STAMP_OPS,       /* attention ranks that are through, ever */
    STAMP_INIT,      /* when the new process has begun its init */
    STAMP_FIRST_USE, /* the longest time from then to the first operation that has used it */
    STAMP_COMMIT,    /* the longest commit that has admitted one */
    STAMP_ROUND,
    STAMP_VAIN,        /* processes that have asked in vain, and have been told why */
    STAMP_REFUSED,     /* rounds whose first process could not reach a member */
    STAMP_ADDRESS = 32 /* text, to the end */
};

struct rank {
    struct hs_job *job;
    struct member_ops exchange;
    uint32_t epoch;
    int round;
    int64_t met, ops; /* what the stamps are to come to */
    bool is_new;      /* it has returned in this round */
};

/* ---- returns_work.c, and returns_streams.c of a program of its own: the operations ---- */

/* Call before there is a context; and at its end. */
void returns_begin(const struct rank *rank);
void returns_end(struct rank *rank);
/* Declare keys, allocate memory and make plans, for the next commit. */
bool returns_prepare(struct rank *rank);
/* Run some operations of all attention ranks, answered by all FFN ranks; or of the remaining
 * ranks of this round. */
bool returns_work(struct rank *rank, bool is_whole);
/* This round's victims are dead, and no commit has gone on without them. */
bool returns_work_in_vain(struct rank *rank);

/* ---- returns_commit.c ---- */

bool returns_commit(struct rank *rank, stepaf_commit_return_t returning);
/* The same, with another key. */
bool returns_commit_more(struct rank *rank, uint64_t key, stepaf_commit_return_t returning);
stepaf_member_state_t returns_state_of(const struct rank *rank, int world);
bool returns_await_state(const struct rank *rank, int world, stepaf_member_state_t state);

/* ---- returns_lose.c ---- */

/* This rank is one of those: it waits to be killed, or leaves. */
void returns_be_lost(struct rank *rank);
/* World rank 0 is the only one of its role: all hear that it cannot leave, and nothing has
 * changed. */
bool returns_refuse_last(const struct rank *rank);
/* Run the other ranks, until the place is free and they have worked without it. */
bool returns_lose_one(struct rank *rank, int victim);
/* The process that asks stops as if it hung, and is killed then, or cannot reach a member: the
 * others' commit takes it in, and goes on without it. The next one asks. */
bool returns_do_without(struct rank *rank, int victim);

/* ---- returns_order.c: who dies when, and how ranks wait for each other ---- */

/* World ranks that die in a round: the first of them, and number @a i of returns_n_dead. */
int returns_victim_of(const struct rank *rank, int round);
int returns_dead_of(const struct rank *rank, int round, int i);
bool returns_dies_in(const struct rank *rank, int round, int world);
int returns_n_dead(const struct rank *rank);
/* Those of this round that are peers of this rank. */
int returns_n_dead_peers(const struct rank *rank);
int returns_attn_left(const struct rank *rank, int round);
/* Whether this rank does what one of the remaining ranks must do. */
bool returns_is_leader(const struct rank *rank);
/* Wait until @a n ranks have arrived here. */
bool returns_meet(struct rank *rank, int n);
/* Meetings in a round of those that are left, between two of all; and ranks that have met in rounds
 * before. */
int returns_n_apart(const struct rank *rank);
int64_t returns_met_before(const struct rank *rank, int round);

/* ---- returns_collective.c ---- */

/* As returns_meet, by stepaf_barrier. */
bool returns_meet_by_barrier(struct rank *rank, int n);
/* This round's victims are dead, and no commit has gone on without them yet. */
bool returns_barrier_names_lost(const struct rank *rank);
/* The map says so of the round's victim. */
bool returns_look_at_map(const struct rank *rank, const char *what);

/* ---- returns_guest.c: the process that takes the place ---- */

extern const char returns_secret[];

/* For the process that is to come. */
bool returns_tell_address(const struct rank *rank);
stepaf_status_t returns_init_back(const struct rank *rank, const char *its_secret, int number,
                                  int64_t timeout_us, stepaf_context_h *ctx_p);
/* Run processes that do not fit: none of them changes anything. */
void returns_ask_in_vain(const struct rank *rank);

/* ---- returns_refuse.c: a process that a member does not answer ---- */

/* Before init of the first process of each rank: data connections to the last one go to ports that
 * it has alone. */
void returns_set_ports(const struct hs_job *job);
/* The first process to return in a round cannot connect to these. It hears so, and ends. */
void returns_be_refused(struct rank *rank);

#endif
