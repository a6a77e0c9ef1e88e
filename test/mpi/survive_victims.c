/* SPDX-License-Identifier: Apache-2.0 */
/* Who dies in a round, and how. */
#include <pthread.h>
#include <string.h>

#include "survive.h"

enum {
    LOAD_US = 4000,   /* until somebody dies under load, at most */
    MOMENT_US = 8000, /* until somebody dies after the others have entered the commit, at most */
    STOPS = 50,
    STOPPED_US = 500,
    GOING_US = 100,
    MARK = 0xa5
};

static uint64_t roll(struct rank *rank, uint64_t sides)
{
    rank->dice = hs_mix(rank->dice + 1);
    return rank->dice % sides;
}

int survive_role_of(const struct rank *rank, int world)
{
    for (int r = 0; r < rank->job->ffn; r++)
        if (stepaf_world_rank(rank->job->ctx, STEPAF_GROUP_FFN, r) == world)
            return STEPAF_FFN;
    return STEPAF_ATTENTION;
}

int survive_count_alive(const struct rank *rank, int role)
{
    int n = 0;

    for (int r = 0; r < rank->job->size; r++)
        n += !rank->is_dead[r] && survive_role_of(rank, r) == role;
    return n;
}

bool survive_is_victim(const struct rank *rank, int world)
{
    for (int i = 0; i < rank->n_victims; i++)
        if (rank->victims[i] == world)
            return true;
    return false;
}

int survive_first_left(const struct rank *rank)
{
    int r = 0;

    while (rank->is_dead[r] || survive_is_victim(rank, r))
        r++;
    return r;
}

void survive_choose_victims(struct rank *rank, int most)
{
    int alive = 0, wanted;

    for (int r = 0; r < rank->job->size; r++)
        alive += !rank->is_dead[r];
    wanted = 1 + (int)roll(rank, 2);
    if (wanted > most)
        wanted = most;
    while (wanted > 1 && 2 * wanted >= alive - 1)
        wanted--;
    rank->n_victims = 0;
    for (int tries = 0; rank->n_victims < wanted && tries < 1000; tries++) {
        int victim =
            roll(rank, 4) ? (int)roll(rank, (uint64_t)rank->job->size) : survive_first_left(rank);
        int role = survive_role_of(rank, victim), same = 0;
        for (int i = 0; i < rank->n_victims; i++)
            same += survive_role_of(rank, rank->victims[i]) == role;
        if (rank->is_dead[victim] || survive_is_victim(rank, victim) ||
            survive_count_alive(rank, role) - same < 2)
            continue;
        rank->victims[rank->n_victims++] = victim;
    }
    rank->in_commit = roll(rank, 2);
    rank->delay_us = (int64_t)roll(rank, rank->in_commit ? MOMENT_US : LOAD_US);
}

void survive_choose_last(struct rank *rank)
{
    rank->victims[0] = rank->job->size - 1;
    rank->n_victims = 1;
    rank->in_commit = false;
    rank->delay_us = LOAD_US;
    HS_INT(survive_role_of(rank, rank->victims[0]), ==, STEPAF_FFN);
}

/* ---- deaths ---- */

static struct {
    struct rank *rank;
    pthread_t thread;
} killer;

/* Have the last FFN rank that is left stand still for moments, so that others are ahead of it: what
 * they have decided, and what they say in the next epoch, comes to it at once. */
static void hold_up(const struct rank *rank)
{
    int r = rank->job->size - 1;

    while (rank->is_dead[r] || survive_is_victim(rank, r))
        r--;
    for (int i = 0; i < STOPS && survive_role_of(rank, r) == STEPAF_FFN; i++) {
        hs_signal(rank->job, r, SIGSTOP);
        hs_sleep_us(STOPPED_US);
        hs_signal(rank->job, r, SIGCONT);
        hs_sleep_us(GOING_US);
    }
}

static void *kill_victims(void *arg)
{
    struct rank *rank = arg;

    hs_sleep_us(rank->delay_us);
    for (int i = 0; i < rank->n_victims; i++) {
        hs_doom(rank->job, rank->victims[i]);
        hs_signal(rank->job, rank->victims[i], SIGKILL);
    }
    if (rank->in_commit && hs_option_int(rank->job, "--stops", 0))
        hold_up(rank);
    return NULL;
}

void survive_begin_killing(struct rank *rank)
{
    if (rank->job->rank != survive_first_left(rank))
        return;
    killer.rank = rank;
    HS_INT(pthread_create(&killer.thread, NULL, kill_victims, rank), ==, 0);
}

void survive_end_killing(const struct rank *rank)
{
    if (rank->job->rank == survive_first_left(rank))
        pthread_join(killer.thread, NULL);
}

bool survive_all_killed(const struct rank *rank)
{
    for (int i = 0; i < rank->n_victims; i++)
        if (!atomic_load(&rank->job->shared->killed[rank->victims[i]]))
            return false;
    return true;
}

bool survive_lost_targets(const struct rank *rank, bool has_mark)
{
    const struct member_ops *ops = &rank->exchange;

    for (int p = 0; p < rank->job->peers; p++) {
        unsigned char *target = ops->target + (size_t)p * ops->bytes;
        int ffn = stepaf_peer_rank(rank->job->ctx, p);
        if (!rank->is_dead[stepaf_world_rank(rank->job->ctx, STEPAF_GROUP_FFN, ffn)])
            continue;
        if (!has_mark)
            memset(target, MARK, ops->bytes);
        for (size_t i = 0; i < ops->bytes; i++)
            if (target[i] != MARK)
                return HS_INT(target[i], ==, MARK);
    }
    return true;
}
