/* SPDX-License-Identifier: Apache-2.0 */
/* Which FFN ranks have which part of the experts, who of them lives, and the commits by which a
 * lost one is left and one that returns is taken in. With --replicas R, FFN rank f of F has part f
 * mod (F / R). */
#ifndef DECODE_REPLICAS_H
#define DECODE_REPLICAS_H

#include "lost.h"

/* An FFN rank, as an attention rank has known it. */
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
    unsigned turn;       /* exchanges, each of which asks the next ones */
    int64_t held_ns;     /* when the last commit was through */
    int64_t asked_again; /* parts that another FFN rank had to be asked for */
    struct replica *ranks;
    stepaf_member_state_t *states; /* by world rank */
};

/* FFN rank @a f's part. */
static inline int replicas_part(int ffn_ranks, int n, int f)
{
    return f % (ffn_ranks / n);
}

int replicas_create(stepaf_context_h ctx, int n, struct replicas **replicas_p,
                    struct reason *reason);
void replicas_destroy(struct replicas *replicas);

/* See who lives, and whether that wants a commit. Costs little where there is nothing new. */
void replicas_look(struct replicas *replicas);

/* A living FFN rank that has @a part, whose turn it is; -1 if there is none. */
int replicas_choose(struct replicas *replicas, int part);

/* Both roles, at the same time: leave who is lost, and take in who asks to return. */
int replicas_commit(stepaf_context_h ctx, struct trouble *trouble);

/* At an attention rank, after replicas_commit. */
void replicas_resume(struct replicas *replicas);

#endif
