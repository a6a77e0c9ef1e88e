/* SPDX-License-Identifier: Apache-2.0 */
/* What ticks were on CLOCK_MONOTONIC, and how far the common clock was from it: a line from each
 * reading of both to the next. The system slews its clock, so that no one rate holds for long;
 * between two readings of before and after, whatever it does, a stamp is as good as these are.
 *
 * The readings are as dense as they were taken for the last of them, and the older the sparser:
 * what has been is forgotten bit by bit. */
#ifndef STEPAF_BASE_CLOCK_HISTORY_H
#define STEPAF_BASE_CLOCK_HISTORY_H

#include <stdint.h>

enum { STEPAF_CLOCK_POINTS = 512 };

struct stepaf_clock_point {
    uint64_t ticks;
    int64_t ns;        /* of CLOCK_MONOTONIC */
    int64_t offset_ns; /* what to add to it for the common clock */
};

struct stepaf_clock_history {
    struct stepaf_clock_point points[STEPAF_CLOCK_POINTS]; /* ascending */
    unsigned n;
};

/* Add a reading. One that is no later than the last is left out. */
void stepaf_clock_history_add(struct stepaf_clock_history *history,
                              struct stepaf_clock_point point);
/* The point of a stamp: on the line between its neighbours, or on that of the two last or first
 * ones; its offset is then that of the nearest. There are two at least. */
struct stepaf_clock_point stepaf_clock_history_at(const struct stepaf_clock_history *history,
                                                  uint64_t ticks);

static inline const struct stepaf_clock_point *stepaf_clock_history_last(
    const struct stepaf_clock_history *history)
{
    return &history->points[history->n - 1];
}

/* Ticks from the first reading to the last. A line of so long can be gone on with for as long
 * again: what its ends are off by no more than doubles. */
static inline uint64_t stepaf_clock_history_span(const struct stepaf_clock_history *history)
{
    return stepaf_clock_history_last(history)->ticks - history->points[0].ticks;
}

#endif
