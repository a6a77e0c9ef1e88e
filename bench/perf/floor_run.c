/* SPDX-License-Identifier: Apache-2.0 */
/* The floor's loops. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "attend.h"
#include "fail.h"
#include "floor.h"

/* Count a poll without a result. */
static inline void idle(const struct perf_floor *floor, unsigned *spins)
{
    if (++*spins < floor->spins)
        return;
    sched_yield();
    *spins = 0;
}

static inline void send(struct perf_lane *lane, int with_data)
{
    for (int i = 0; i < lane->n_copies && with_data; i++)
        memcpy(lane->copies[i].to, lane->copies[i].from, lane->copies[i].bytes);
    __atomic_store_n(lane->out, ++lane->count, __ATOMIC_RELEASE);
}

static int start(void *self, unsigned w, int stage)
{
    const struct perf_floor *floor = self;
    struct perf_lane *lanes = floor->lanes + w * (size_t)floor->n_peers;

    for (int i = 0; i < floor->n_peers; i++)
        send(&lanes[i], floor->c->stages[stage].n_push > 0);
    return 0;
}

static int wait(void *self, unsigned w, int stage)
{
    const struct perf_floor *floor = self;
    const struct perf_lane *lanes = floor->lanes + w * (size_t)floor->n_peers;
    unsigned spins = 0;

    (void)stage;
    for (int i = 0; i < floor->n_peers; i++) {
        while (__atomic_load_n(lanes[i].in, __ATOMIC_ACQUIRE) != lanes[i].count)
            idle(floor, &spins);
    }
    return 0;
}

/* The FFN side's position with one attention rank. */
struct turn {
    uint64_t left;
    unsigned place;
    int stage;
};

/* Receive attention rank @a a's next operation if it has arrived. */
static inline int take(const struct perf_floor *floor, int a, struct turn *turn)
{
    const struct perf_case *c = floor->c;
    struct perf_lane *lane = floor->lanes + turn->place * (size_t)floor->n_peers + a;

    if (__atomic_load_n(lane->in, __ATOMIC_ACQUIRE) != lane->count + 1)
        return 0;
    send(lane, c->stages[turn->stage].n_pull > 0);
    turn->left--;
    if (++turn->place == c->window) {
        turn->place = 0;
        turn->stage = turn->stage == c->n_stages - 1 ? 0 : turn->stage + 1;
    }
    return 1;
}

static int serve(struct perf_floor *floor, uint64_t ops)
{
    uint64_t each = ops * (uint64_t)floor->c->n_stages;
    uint64_t left = each * (uint64_t)floor->n_peers;
    struct turn *turns = calloc((size_t)floor->n_peers + 1, sizeof(*turns));
    unsigned spins = 0;

    if (turns == NULL)
        return perf_fail("out of memory");
    for (int a = 0; a < floor->n_peers; a++)
        turns[a].left = each;
    for (int a = 0; left > 0;) {
        int taken = turns[a].left > 0 && take(floor, a, &turns[a]);

        left -= (uint64_t)taken;
        if (taken)
            spins = 0;
        else
            idle(floor, &spins);
        if (taken || !floor->recv_each)
            a = a == floor->n_peers - 1 ? 0 : a + 1;
    }
    free(turns);
    return 0;
}

int perf_floor_run(void *self, struct perf_block *block)
{
    struct perf_floor *floor = self;

    if (floor->place->role == STEPAF_FFN)
        return serve(floor, block->lead_ops + block->timed_ops);
    return perf_attend_block(floor->c, floor, start, wait, block);
}
