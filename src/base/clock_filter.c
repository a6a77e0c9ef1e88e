/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock_filter.h"

#include <string.h>

static const double DRIFT = STEPAF_CLOCK_DRIFT_PPM * 1e-6;
static const int64_t WINDOW_NS = 2000000000;
static const int64_t WINDOWS_NS =
    2 * STEPAF_CLOCK_WINDOWS * 2000000000LL; /* older ones are forgotten */
/* A rate is of so long at least, and may be wrong by so much at most. */
static const double RATE_OVER_NS = 5e9, RATE_DOUBT_MAX = 2e-6;
static const int64_t CONTRADICTED_NS = 2000;
static const int64_t READ_NS = 200; /* what two readings are off themselves */
/* How a limit gets worse with time: before there is a rate, and with one. */
static const double WORSE_UNRATED = 20e-6, WORSE_RATED = 1e-6;
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

static double worse(const struct stepaf_clock_filter *filter)
{
    return filter->is_rated ? WORSE_RATED : WORSE_UNRATED;
}

/* What limits of before are at @a ns. */
static int64_t low_at(const struct stepaf_clock_filter *filter,
                      const struct stepaf_clock_window *window, int64_t ns)
{
    return window->low_ns +
           (int64_t)((filter->rate - worse(filter)) * (double)(ns - window->low_at_ns));
}

static int64_t high_at(const struct stepaf_clock_filter *filter,
                       const struct stepaf_clock_window *window, int64_t ns)
{
    return window->high_ns +
           (int64_t)((filter->rate + worse(filter)) * (double)(ns - window->high_at_ns));
}

/* Have the last window, or the next one, know of a probe. */
static void note_limits(struct stepaf_clock_filter *filter, const struct stepaf_clock_probe *probe)
{
    struct stepaf_clock_window *windows = filter->windows;
    while (filter->n_windows && probe->at_ns - windows[0].began_ns > WINDOWS_NS)
        memmove(&windows[0], &windows[1], --filter->n_windows * sizeof(windows[0]));
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

static int64_t width_of(const struct stepaf_clock_window *window)
{
    return window->high_ns - window->low_ns;
}

static int64_t least_width(const struct stepaf_clock_filter *filter)
{
    int64_t least = INT64_MAX;

    for (unsigned i = 0; i < filter->n_windows; i++)
        least = width_of(&filter->windows[i]) < least ? width_of(&filter->windows[i]) : least;
    return least;
}

/* Forget what the latest probes contradict: the other clock's rate has changed, and there is none to rely
 * on, for a while. As far as the shortest ways stay what they are, the offset is not just between the limits of
 * a window, but as near to their middle as it is not wider than the narrowest. */
static void forget_contradicted(struct stepaf_clock_filter *filter, int64_t ns)
{
    int64_t least = least_width(filter) / 2, low = INT64_MIN, high = INT64_MAX;
    unsigned from = filter->n_windows;

    for (; from > 0; from--) {
        int64_t its_low = low_at(filter, &filter->windows[from - 1], ns) + least;
        int64_t its_high = high_at(filter, &filter->windows[from - 1], ns) - least;
        low = its_low > low ? its_low : low;
        high = its_high < high ? its_high : high;
        if (low > high + CONTRADICTED_NS)
            break;
    }
    if (!from)
        return;
    from -= from == filter->n_windows; /* what the last says by itself stays */
    filter->n_windows -= from;
    memmove(&filter->windows[0], &filter->windows[from],
            filter->n_windows * sizeof(filter->windows[0]));
    filter->is_rated = false;
}

/* Half of the sum of both ends. */
static double middle(int64_t one, int64_t other)
{
    return (double)one + (double)(other - one) / 2;
}

/* Find the rate between the two windows that tell it best: how much wider they are than the narrowest is
 * how far they may be off. If none tell it well enough, it stays as it was. */
static void find_rate(struct stepaf_clock_filter *filter)
{
    int64_t least = least_width(filter);
    double best_doubt = RATE_DOUBT_MAX;

    for (unsigned i = 0; i + 1 < filter->n_windows; i++)
        for (unsigned j = i + 1; j < filter->n_windows; j++) {
            const struct stepaf_clock_window *from = &filter->windows[i], *to = from + (j - i);
            double over =
                middle(to->low_at_ns, to->high_at_ns) - middle(from->low_at_ns, from->high_at_ns);
            double doubt = (double)(width_of(from) + width_of(to) - 2 * least + READ_NS) / 2 / over;
            if (over < RATE_OVER_NS || doubt > best_doubt)
                continue;
            double rate =
                (middle(to->low_ns, to->high_ns) - middle(from->low_ns, from->high_ns)) / over;
            filter->rate = rate > DRIFT ? DRIFT : rate < -DRIFT ? -DRIFT : rate;
            filter->is_rated = true;
            best_doubt = doubt;
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
    if (filter->is_rated)
        forget_contradicted(filter, probe.at_ns);
    find_rate(filter);
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
