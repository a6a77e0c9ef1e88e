/* SPDX-License-Identifier: Apache-2.0 */
/* Replicated FFN ranks: which rank has which part of the experts, which ranks are alive, and the
 * commits that leave out a lost rank and admit a returning one. With --replicas R, FFN rank f of
 * F has part f mod (F / R). */
#ifndef DECODE_REPLICAS_H
#define DECODE_REPLICAS_H

#include "lost.h"

/* The history of an FFN rank, as an attention rank has seen it. */
struct replica {
    int lives;
    int n_lost, n_back; /* how often */
    int64_t lost_ns;    /* when last */
    int64_t away_ns;    /* how long, at most, from its loss to its return */
    int64_t answers;
    int64_t answers_since; /* of these, since its last return */
};

struct replicas {
    stepaf_context_h ctx;
    int n; /* FFN ranks that have each part */
    int ffn_ranks;
    int parts;
    int hold;            /* a commit is wanted, by this rank or by another one */
    unsigned turn;       /* exchanges; each one starts its search at the next FFN rank */
    int64_t held_ns;     /* when the last commit completed */
    int64_t asked_again; /* parts for which another FFN rank had to be asked */
    struct replica *ranks;
    stepaf_member_state_t *states; /* by world rank */
};

/* Return FFN rank @a f's part. */
static inline int replicas_part(int ffn_ranks, int n, int f)
{
    return f % (ffn_ranks / n);
}

int replicas_create(stepaf_context_h ctx, int n, struct replicas **replicas_p,
                    struct reason *reason);
void replicas_destroy(struct replicas *replicas);

/* Check which ranks are alive, and whether a commit is needed. Cheap where nothing has changed. */
void replicas_look(struct replicas *replicas);

/* Return the next live FFN rank, round-robin, that has @a part; -1 if there is none. */
int replicas_choose(struct replicas *replicas, int part);

/* Commit, in both roles at the same time: leave out lost ranks and admit ranks that ask to
 * return. */
int replicas_commit(stepaf_context_h ctx, struct trouble *trouble);

/* Call at an attention rank, after replicas_commit. */
void replicas_resume(struct replicas *replicas);

#endif
