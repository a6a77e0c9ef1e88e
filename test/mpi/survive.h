/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that survive others: shared by the files of the test. */
#ifndef STEPAF_TEST_SURVIVE_H
#define STEPAF_TEST_SURVIVE_H

#include "member_ops.h"

enum { SURVIVE_LATER = 100 }; /* keys of later rounds */

/* Entries of the shared page; 0 is the time of the last death. */
enum { STAMP_QUIET = 1, STAMP_NAMED, STAMP_COMMIT, STAMP_OPS, STAMP_LIST, STAMP_ENTERED };

struct rank {
    struct hs_job *job;
    struct member_ops exchange;
    uint32_t epoch;
    bool is_dead[HS_MAX_RANKS]; /* by world rank: it has been chosen in a round up to this one */
    int victims[2], n_victims;  /* of this round */
    bool in_commit;             /* they die there, else under load */
    int64_t delay_us;
    uint64_t dice;
    int fd;              /* tells of losses */
    _Atomic int n_calls; /* so does the callback */
    _Atomic bool closes; /* it is about to finalize */
    int64_t median_ns;   /* of an operation of those that are left */
};

/* ---- survive.c ---- */

/* Get the parameters of a commit that continues without lost ranks. */
extern const stepaf_commit_params_t survive_go_on;

/* Run one operation; returns whether it lost some peer. The answers of all others are right. */
bool survive_ask(struct rank *rank, uint32_t flags, bool *is_lost_p);
/* Serve until all remaining attention ranks have said that they have finished. */
void survive_serve(struct rank *rank, int stamp, int64_t until);
/* A commit that goes on; a batch of a dead rank may still lie where it is to be released first. */
bool survive_commit_on(struct rank *rank);
/* Check that all remaining ranks have the same list, with all of them in it. */
void survive_compare_lists(struct rank *rank);
bool survive_declare_more(struct rank *rank, int round);
bool survive_reset_stamps(struct rank *rank);
/* What is left works, without a word of who is not. */
bool survive_work(struct rank *rank);

/* ---- survive_victims.c ---- */

int survive_role_of(const struct rank *rank, int world);
int survive_count_alive(const struct rank *rank, int role);
bool survive_is_victim(const struct rank *rank, int world);
/* The first that will still be there after this round. */
int survive_first_left(const struct rank *rank);
/* All ranks choose the same: nobody whose role would be empty then, and never half of those that
 * are left. */
void survive_choose_victims(struct rank *rank, int most);
/* For --figures, in the first round: the last FFN rank, under load, so that both times are
 * there. */
void survive_choose_last(struct rank *rank);
/* A thread of the first remaining rank kills them. */
void survive_begin_killing(struct rank *rank);
void survive_end_killing(const struct rank *rank);
bool survive_all_killed(const struct rank *rank);
/* The pull destinations of dead ranks belong to nobody: mark them, or see that the mark is still there. */
bool survive_lost_targets(const struct rank *rank, bool has_mark);

/* ---- survive_cut.c ---- */

/* The last FFN rank owes an answer: that is seen, and is no loss. */
void survive_be_slow(struct rank *rank);
/* Cut the network in two. */
void survive_cut_in_two(struct rank *rank);

#endif
