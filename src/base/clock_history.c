/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock_history.h"

#include <math.h>
#include <string.h>

/* Forget the reading whose neighbours are closest to each other, for its age: what remains is the
 * sparser the older it is, by the square root. */
static void forget_one(struct stepaf_clock_history *history)
{
    const struct stepaf_clock_point *points = history->points;
    unsigned least = 1;
    double least_cost = INFINITY;

    for (unsigned i = 1; i + 1 < history->n; i++) {
        double gap = (double)(points[i + 1].ticks - points[i - 1].ticks);
        double cost = gap * gap / (double)(points[history->n - 1].ticks - points[i].ticks);
        if (cost < least_cost) {
            least_cost = cost;
            least = i;
        }
    }
    memmove(&history->points[least], &history->points[least + 1],
            (--history->n - least) * sizeof(history->points[0]));
}

void stepaf_clock_history_add(struct stepaf_clock_history *history, struct stepaf_clock_point point)
{
    if (history->n) {
        const struct stepaf_clock_point *last = stepaf_clock_history_last(history);
        if ((int64_t)(point.ticks - last->ticks) <= 0 || point.ns <= last->ns)
            return;
    }
    if (history->n == STEPAF_CLOCK_POINTS)
        forget_one(history);
    history->points[history->n++] = point;
}

/* Return the first point of the line for a stamp. */
static const struct stepaf_clock_point *line_of(const struct stepaf_clock_history *history,
                                                uint64_t ticks)
{
    unsigned from = 0, to = history->n - 1; /* the line begins at from or later, and before to */

    while (to - from > 1) {
        unsigned middle = from + (to - from) / 2;
        if ((int64_t)(ticks - history->points[middle].ticks) >= 0)
            from = middle;
        else
            to = middle;
    }
    return &history->points[from];
}

struct stepaf_clock_point stepaf_clock_history_at(const struct stepaf_clock_history *history,
                                                  uint64_t ticks)
{
    const struct stepaf_clock_point *from = line_of(history, ticks), *to = from + 1;
    double part = (double)(int64_t)(ticks - from->ticks) / (double)(to->ticks - from->ticks);
    double within = part < 0 ? 0 : part > 1 ? 1 : part;

    return (struct stepaf_clock_point){
        .ticks = ticks,
        .ns = from->ns + (int64_t)(part * (double)(to->ns - from->ns)),
        .offset_ns =
            from->offset_ns + (int64_t)(within * (double)(to->offset_ns - from->offset_ns)),
    };
}
