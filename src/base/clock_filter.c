/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock_filter.h"

#include <math.h>
#include <string.h>

static const double DRIFT = STEPAF_CLOCK_DRIFT_PPM * 1e-6;
static const int64_t WINDOW_NS = 2000000000;
static const int64_t WINDOWS_NS =
    2 * STEPAF_CLOCK_WINDOWS * 2000000000LL; /* older windows are forgotten */
/* There is a rate once the windows span RATE_OVER_NS. Before that, limits get worse with time by
 * WORSE_UNRATED. */
static const int64_t RATE_OVER_NS = 8000000000;
static const double WORSE_UNRATED = 20e-6;
/* A rate stays while it leaves a corridor that is narrower than the widest by at most AS_WIDE_NS
 * plus a fifth of what windows differ by. Windows contradict each other if the corridor is narrower
 * than they are by more than CONTRADICTED_NS plus one and a half of that difference. */
static const int64_t AS_WIDE_NS = 500, CONTRADICTED_NS = 1000;
enum { FIT_STEPS = 24 };                                          /* of 400 ppm, halved each time */
static const int64_t SLEW_MIN_NS = 250000000, SLEW_FACTOR = 2000; /* at most 500 ppm */
static const int64_t FAR_NS = 100000000;

void stepaf_clock_filter_range(const struct stepaf_clock_filter *filter, int64_t ns,
                               int64_t *low_ns_p, int64_t *high_ns_p)
{
    int64_t since = ns > filter->at_ns ? ns - filter->at_ns : filter->at_ns - ns;
    int64_t wider = (int64_t)((double)since * DRIFT) + 1;

    *low_ns_p = filter->low_ns - wider;
    *high_ns_p = filter->high_ns + wider;
}

/* Return an earlier window's limit as of @a ns. */
static int64_t low_at(const struct stepaf_clock_filter *filter,
                      const struct stepaf_clock_window *window, int64_t ns)
{
    double worse = filter->is_rated ? 0 : WORSE_UNRATED;

    return window->low_ns + (int64_t)((filter->rate - worse) * (double)(ns - window->low_at_ns));
}

static int64_t high_at(const struct stepaf_clock_filter *filter,
                       const struct stepaf_clock_window *window, int64_t ns)
{
    double worse = filter->is_rated ? 0 : WORSE_UNRATED;

    return window->high_ns + (int64_t)((filter->rate + worse) * (double)(ns - window->high_at_ns));
}

/* Note the limits of a probe in the last window, or in the next one. */
static void note_limits(struct stepaf_clock_filter *filter, const struct stepaf_clock_probe *probe)
{
    struct stepaf_clock_window *windows = filter->windows;
    while (filter->n_windows && probe->at_ns - windows[0].began_ns > WINDOWS_NS)
        memmove(&windows[0], &windows[1], --filter->n_windows * sizeof(windows[0]));
    filter->is_rated = filter->is_rated && filter->n_windows > 0; /* all windows were long ago */
    int64_t low = probe->offset_ns - probe->half_ns, high = probe->offset_ns + probe->half_ns;
    struct stepaf_clock_window *last = &windows[filter->n_windows ? filter->n_windows - 1 : 0];

    if (!filter->n_windows || probe->at_ns - last->began_ns >= WINDOW_NS) {
        if (filter->n_windows == STEPAF_CLOCK_WINDOWS)
            memmove(&windows[0], &windows[1], --filter->n_windows * sizeof(windows[0]));
        windows[filter->n_windows++] = (struct stepaf_clock_window){
            .began_ns = probe->at_ns,
            .low_at_ns = probe->at_ns,
            .low_ns = low,
            .high_at_ns = probe->at_ns,
            .high_ns = high,
        };
        return;
    }
    if (low >= low_at(filter, last, probe->at_ns)) {
        last->low_at_ns = probe->at_ns;
        last->low_ns = low;
    }
    if (high <= high_at(filter, last, probe->at_ns)) {
        last->high_at_ns = probe->at_ns;
        last->high_ns = high;
    }
}

/* Return the width of a window: its shortest way there and its shortest way back together, as of
 * one time by the rate. */
static int64_t width_of(const struct stepaf_clock_filter *filter,
                        const struct stepaf_clock_window *window)
{
    return window->high_ns - window->low_ns -
           (int64_t)(filter->rate * (double)(window->high_at_ns - window->low_at_ns));
}

struct widths {
    int64_t least;
    int64_t spread; /* how much wider the median is */
};

static struct widths compare_widths(const struct stepaf_clock_filter *filter)
{
    int64_t sorted[STEPAF_CLOCK_WINDOWS];

    for (unsigned i = 0; i < filter->n_windows; i++) {
        int64_t width = width_of(filter, &filter->windows[i]);
        unsigned at = i;
        for (; at > 0 && sorted[at - 1] > width; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = width;
    }
    return (struct widths){sorted[0], sorted[filter->n_windows / 2] - sorted[0]};
}

/* Return the width of the corridor that the limits of all windows leave if the other clock runs at
 * @a rate. @a higher_p: whether a higher rate leaves a wider corridor. */
static int64_t corridor(const struct stepaf_clock_filter *filter, double rate, bool *higher_p)
{
    const struct stepaf_clock_window *first = &filter->windows[0];
    int64_t low_at_ns = first->low_at_ns, high_at_ns = first->high_at_ns;
    double low = -INFINITY, high = INFINITY;

    for (unsigned i = 0; i < filter->n_windows; i++) {
        const struct stepaf_clock_window *window = &filter->windows[i];
        double its_low = (double)(window->low_ns - first->low_ns) -
                         rate * (double)(window->low_at_ns - first->low_at_ns);
        double its_high = (double)(window->high_ns - first->low_ns) -
                          rate * (double)(window->high_at_ns - first->low_at_ns);
        if (its_low > low) {
            low = its_low;
            low_at_ns = window->low_at_ns;
        }
        if (its_high < high) {
            high = its_high;
            high_at_ns = window->high_at_ns;
        }
    }
    *higher_p = low_at_ns > high_at_ns;
    return (int64_t)(high - low);
}

/* Return the rate at which no limit cuts off anything that another has left. Ways cannot be shorter
 * than the shortest, so the right rate leaves the widest corridor; where another rate leaves a
 * wider one, that is chance. The corridor's width is a concave function of the rate. */
static double find_widest(const struct stepaf_clock_filter *filter)
{
    double from = -DRIFT, to = DRIFT;

    for (int i = 0; i < FIT_STEPS; i++) {
        double middle = (from + to) / 2;
        bool higher;
        (void)corridor(filter, middle, &higher);
        if (higher)
            from = middle;
        else
            to = middle;
    }
    return (from + to) / 2;
}

/* Find the rate, if the windows tell it. It changes no more than they require. */
static void find_rate(struct stepaf_clock_filter *filter, const struct widths *widths)
{
    double wide = find_widest(filter), narrow = filter->rate;
    bool higher;
    int64_t enough = corridor(filter, wide, &higher) - AS_WIDE_NS - widths->spread / 5;

    filter->is_rated = true;
    if (corridor(filter, narrow, &higher) >= enough)
        return;
    for (int i = 0; i < FIT_STEPS; i++) {
        double middle = (narrow + wide) / 2;
        if (corridor(filter, middle, &higher) >= enough)
            wide = middle;
        else
            narrow = middle;
    }
    filter->rate = wide;
}

static bool spans_enough(const struct stepaf_clock_filter *filter)
{
    return filter->windows[filter->n_windows - 1].began_ns - filter->windows[0].began_ns >=
           RATE_OVER_NS;
}

/* Find the rate, and forget the oldest windows as long as no rate is right for all windows: the
 * other clock's rate has changed, or the ways there and back have. If too little is left for a
 * rate, the last rate is a guess. */
static void fit(struct stepaf_clock_filter *filter)
{
    bool higher;

    while (spans_enough(filter)) {
        struct widths widths = compare_widths(filter);
        find_rate(filter, &widths);
        widths = compare_widths(filter);
        if (corridor(filter, filter->rate, &higher) >=
            widths.least - CONTRADICTED_NS - widths.spread * 3 / 2)
            return;
        filter->is_rated = false;
        filter->n_windows--;
        memmove(&filter->windows[0], &filter->windows[1],
                filter->n_windows * sizeof(filter->windows[0]));
    }
}

void stepaf_clock_filter_add(struct stepaf_clock_filter *filter, struct stepaf_clock_probe probe,
                             int64_t its_bound_ns)
{
    int64_t low = probe.offset_ns - probe.half_ns - its_bound_ns;
    int64_t high = probe.offset_ns + probe.half_ns + its_bound_ns;

    if (filter->known) {
        int64_t old_low, old_high;
        stepaf_clock_filter_range(filter, probe.at_ns, &old_low, &old_high);
        if (old_low > high || old_high < low) {
            filter->n_windows = 0;
            filter->is_rated = false;
            filter->rate = 0;
            filter->n_jumps++;
        } else {
            low = old_low > low ? old_low : low;
            high = old_high < high ? old_high : high;
        }
    }
    filter->known = true;
    filter->at_ns = probe.at_ns;
    filter->low_ns = low;
    filter->high_ns = high;
    note_limits(filter, &probe);
    fit(filter);
}

int64_t stepaf_clock_filter_offset(const struct stepaf_clock_filter *filter, int64_t ns)
{
    int64_t best_low = INT64_MIN, best_high = INT64_MAX, low, high;

    for (unsigned i = 0; i < filter->n_windows; i++) {
        low = low_at(filter, &filter->windows[i], ns);
        high = high_at(filter, &filter->windows[i], ns);
        best_low = low > best_low ? low : best_low;
        best_high = high < best_high ? high : best_high;
    }
    int64_t offset = best_low + (best_high - best_low) / 2;
    stepaf_clock_filter_range(filter, ns, &low, &high);
    return offset < low ? low : offset > high ? high : offset;
}

struct stepaf_clock_line stepaf_clock_line_to(const struct stepaf_clock_line *line,
                                              const struct stepaf_clock_filter *filter, int64_t ns)
{
    int64_t offset = stepaf_clock_filter_offset(filter, ns);
    int64_t now = stepaf_clock_line_at(line, ns), off = offset - now;
    int64_t far = off < 0 ? -off : off;

    if (!line->at_ns || far > FAR_NS)
        return (struct stepaf_clock_line){.at_ns = ns, .offset_ns = offset, .rate = filter->rate};
    return (struct stepaf_clock_line){
        .at_ns = ns,
        .offset_ns = now,
        .rate = filter->rate,
        .slew_ns = off,
        .slew_over_ns = far * SLEW_FACTOR > SLEW_MIN_NS ? far * SLEW_FACTOR : SLEW_MIN_NS,
    };
}
