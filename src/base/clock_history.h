/* SPDX-License-Identifier: Apache-2.0 */
/* What ticks were on CLOCK_MONOTONIC, and how far the common clock was from it: a line from each
 * reading of both to the next. The system slews its clock, so no single rate holds for long.
 * Between two readings before and after it, a stamp is as good as these readings are, whatever the
 * system does.
 *
 * The latest readings are as dense as they were taken; older ones are sparser, as the past is
 * forgotten bit by bit. */
#ifndef STEPAF_BASE_CLOCK_HISTORY_H
#define STEPAF_BASE_CLOCK_HISTORY_H

#include <stdint.h>

enum { STEPAF_CLOCK_POINTS = 512 };

struct stepaf_clock_point {
    uint64_t ticks;
    int64_t ns;        /* of CLOCK_MONOTONIC */
    int64_t offset_ns; /* add to ns for the common clock */
};

struct stepaf_clock_history {
    struct stepaf_clock_point points[STEPAF_CLOCK_POINTS]; /* ascending */
    unsigned n;
};

/* Add a reading. A reading that is no later than the last is ignored. */
void stepaf_clock_history_add(struct stepaf_clock_history *history,
                              struct stepaf_clock_point point);
/* Return the point of a stamp. It lies on the line between its neighbours, or on that of the last
 * two or first two; its offset is then that of the nearest reading. There must be at least two
 * readings. */
struct stepaf_clock_point stepaf_clock_history_at(const struct stepaf_clock_history *history,
                                                  uint64_t ticks);

static inline const struct stepaf_clock_point *stepaf_clock_history_last(
    const struct stepaf_clock_history *history)
{
    return &history->points[history->n - 1];
}

/* Return the ticks from the first reading to the last. A line of this length can be extended by the
 * same length: the error of its ends no more than doubles. */
static inline uint64_t stepaf_clock_history_span(const struct stepaf_clock_history *history)
{
    return stepaf_clock_history_last(history)->ticks - history->points[0].ticks;
}

#endif
