/* SPDX-License-Identifier: Apache-2.0 */
#include "replicas.h"

#include <stdlib.h>

/* A commit without the desired effect is not repeated immediately. */
enum { PAUSE_NS = 20000000 };

int replicas_create(stepaf_context_h ctx, int n, struct replicas **replicas_p,
                    struct reason *reason)
{
    int ffn_ranks = stepaf_size(ctx, STEPAF_GROUP_FFN);
    int world = stepaf_size(ctx, STEPAF_GROUP_WORLD);
    struct replicas *replicas = calloc(1, sizeof(*replicas));
    if (!replicas)
        return reason_no_memory(reason);
    *replicas =
        (struct replicas){.ctx = ctx, .n = n, .ffn_ranks = ffn_ranks, .parts = ffn_ranks / n};
    replicas->ranks = calloc((size_t)ffn_ranks, sizeof(replicas->ranks[0]));
    replicas->states = calloc((size_t)world, sizeof(replicas->states[0]));
    if (!replicas->ranks || !replicas->states) {
        replicas_destroy(replicas);
        return reason_no_memory(reason);
    }
    for (int f = 0; f < ffn_ranks; f++)
        replicas->ranks[f].lives = 1;
    *replicas_p = replicas;
    return 0;
}

void replicas_destroy(struct replicas *replicas)
{
    if (!replicas)
        return;
    free(replicas->ranks);
    free(replicas->states);
    free(replicas);
}

static void note_state(struct replica *replica, int lives, int64_t now_ns)
{
    if (replica->lives && !lives) {
        replica->n_lost++;
        replica->lost_ns = now_ns;
    } else if (!replica->lives && lives) {
        int64_t away_ns = now_ns - replica->lost_ns;
        replica->n_back++;
        replica->answers_since = 0;
        replica->away_ns = away_ns > replica->away_ns ? away_ns : replica->away_ns;
    }
    replica->lives = lives;
}

void replicas_look(struct replicas *replicas)
{
    stepaf_members_t members = {.size = sizeof(members)};
    int world = stepaf_size(replicas->ctx, STEPAF_GROUP_WORLD);
    if (replicas->n == 1 ||
        stepaf_members_query(replicas->ctx, &members, replicas->states, world) != STEPAF_OK)
        return;
    int64_t now_ns = stepaf_clock_ns(replicas->ctx);
    for (int f = 0; f < replicas->ffn_ranks; f++) {
        stepaf_member_state_t state =
            replicas->states[stepaf_world_rank(replicas->ctx, STEPAF_GROUP_FFN, f)];
        note_state(&replicas->ranks[f], state == STEPAF_MEMBER_IN || state == STEPAF_MEMBER_SLOW,
                   now_ns);
        if ((state == STEPAF_MEMBER_LOST || state == STEPAF_MEMBER_ASKS) &&
            now_ns - replicas->held_ns > PAUSE_NS)
            replicas->hold = 1;
    }
}

int replicas_choose(struct replicas *replicas, int part)
{
    if (replicas->n == 1)
        return part; /* if it is lost, the library reports that */
    for (int r = 0; r < replicas->n; r++) {
        int f =
            part + (int)((replicas->turn + (unsigned)r) % (unsigned)replicas->n) * replicas->parts;
        if (replicas->ranks[f].lives)
            return f;
    }
    return -1;
}

int replicas_commit(stepaf_context_h ctx, struct trouble *trouble)
{
    const stepaf_commit_params_t params = {.field_mask = STEPAF_COMMIT_LOST | STEPAF_COMMIT_RETURN,
                                           .lost = STEPAF_COMMIT_LEAVE_LOST,
                                           .returning = STEPAF_COMMIT_ADMIT};
    stepaf_status_t status = stepaf_commit_with(ctx, &params);
    /* The rank that asked may be gone: then nothing has changed. */
    if (status == STEPAF_OK || status == STEPAF_ERR_STATE)
        return 0;
    return trouble_status(ctx, status, "going on without a lost rank", 0, trouble);
}

void replicas_resume(struct replicas *replicas)
{
    replicas->hold = 0;
    replicas->held_ns = stepaf_clock_ns(replicas->ctx);
    replicas_look(replicas);
}
