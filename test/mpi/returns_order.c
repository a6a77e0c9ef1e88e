/* SPDX-License-Identifier: Apache-2.0 */
/* Who dies in which round, and how ranks wait for each other by the shared page. */
#include "returns.h"

int returns_victim_of(const struct rank *rank, int round)
{
    struct hs_job *job = rank->job;
    uint64_t dice = hs_mix((uint64_t)hs_option_int(job, "--seed", 1) * 1000 + (uint64_t)round);
    long long role = hs_option_int(job, "--role", -1);
    int victim = (int)(dice % (uint64_t)job->size);

    if (hs_option_int(job, "--first", 0))
        return 0;
    /* The split of these tests has attention ranks first. */
    if (role == 0)
        victim = (int)(dice % (uint64_t)job->attn);
    if (role == 1)
        victim = job->attn + (int)(dice % (uint64_t)job->ffn);
    return victim;
}

/* With --two, another one of the other role, in splits of two halves. */
int returns_dead_of(const struct rank *rank, int round, int i)
{
    int size = rank->job->size, victim = returns_victim_of(rank, round);

    return hs_option_int(rank->job, "--first", 0) ? i : (victim + i * (size / 2)) % size;
}

bool returns_dies_in(const struct rank *rank, int round, int world)
{
    for (int i = 0; i < returns_n_dead(rank); i++)
        if (returns_dead_of(rank, round, i) == world)
            return true;
    return false;
}

int returns_n_dead(const struct rank *rank)
{
    return (int)hs_option_int(rank->job, "--first", hs_option_int(rank->job, "--two", 0) ? 2 : 1);
}

int returns_n_dead_peers(const struct rank *rank)
{
    int n = 0;

    for (int i = 0; i < returns_n_dead(rank); i++)
        n += member_ops_is_peer(rank->job, returns_dead_of(rank, rank->round, i));
    return n;
}

bool returns_is_leader(const struct rank *rank)
{
    int leader = 0;

    while (returns_dies_in(rank, rank->round, leader))
        leader++;
    return rank->job->rank == leader;
}

bool returns_meet(struct rank *rank, int n)
{
    rank->met += n;
    atomic_fetch_add(&rank->job->shared->stamp[STAMP_MET], 1);
    return member_ops_await(rank->job, STAMP_MET, rank->met);
}

/* With --once nobody works without it. */
int returns_attn_left(const struct rank *rank, int round)
{
    int left = rank->job->attn;

    if (hs_option_int(rank->job, "--once", 0))
        return 0;
    for (int i = 0; i < returns_n_dead(rank); i++)
        left -= returns_dead_of(rank, round, i) < rank->job->attn;
    return left;
}

int returns_n_apart(const struct rank *rank)
{
    return hs_option_int(rank->job, "--stop", 0) || hs_option_int(rank->job, "--refused", 0) ? 4
                                                                                             : 2;
}

int64_t returns_met_before(const struct rank *rank, int round)
{
    int64_t n = rank->job->size, left = n - returns_n_dead(rank);

    return round * (n + returns_n_apart(rank) * left + n);
}
