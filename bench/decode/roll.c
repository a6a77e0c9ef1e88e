/* SPDX-License-Identifier: Apache-2.0 */
#include "roll.h"

#include <stdlib.h>

int roll_create(int n, struct roll *roll_p, struct reason *reason)
{
    struct roll roll = {.entries = calloc((size_t)n, sizeof(roll.entries[0])), .n = n};
    if (!roll.entries)
        return reason_no_memory(reason);
    *roll_p = roll;
    return 0;
}

void roll_destroy(struct roll *roll)
{
    free(roll->entries);
    *roll = (struct roll){0};
}

void roll_heard(struct roll *roll, int rank, int64_t now_ns)
{
    roll->entries[rank].heard_ns = now_ns;
}

void roll_stop(struct roll *roll, int rank)
{
    roll->n_stopped += !roll->entries[rank].stopped;
    roll->entries[rank].stopped = 1;
}

void roll_leave(struct roll *roll, int rank)
{
    roll_stop(roll, rank);
    roll->n_gone += !roll->entries[rank].gone;
    roll->entries[rank].gone = 1;
}

void roll_hold(struct roll *roll, int rank)
{
    roll->n_held += !roll->entries[rank].held;
    roll->entries[rank].held = 1;
}

void roll_resume(struct roll *roll, int64_t now_ns)
{
    for (int i = 0; i < roll->n; i++) {
        roll->entries[i].held = 0;
        roll->entries[i].heard_ns = now_ns;
    }
    roll->n_held = 0;
}

int roll_silent(const struct roll *roll, int64_t since_ns)
{
    for (int i = 0; i < roll->n; i++)
        if (!roll->entries[i].gone && roll->entries[i].heard_ns < since_ns)
            return i;
    return -1;
}
