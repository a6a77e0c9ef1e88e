/* SPDX-License-Identifier: Apache-2.0 */
/* How far another node's clock is from this one's, from probes that go there and back.
 *
 * A probe says in which interval the offset was: somewhere in its round trip the other one looked
 * at its clock. Intervals are intersected, and grow while time passes, by what two clocks can run
 * apart: so the offset is in what is left, whatever the network does. Within it, the estimate goes
 * by the probes whose way there was the shortest, and by those whose way back was, of a minute:
 * each limits the offset on one side. The other clock's rate is the one at which these limits leave
 * the widest corridor, and the middle of that is the best guess as long as the shortest ways take
 * alike: what they differ by, the estimate is off by half of.
 */
#ifndef STEPAF_BASE_CLOCK_FILTER_H
#define STEPAF_BASE_CLOCK_FILTER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    STEPAF_CLOCK_WINDOWS = 32,
    STEPAF_CLOCK_DRIFT_PPM = 200 /* two clocks run apart by no more */
};

/* A probe: at this node's time @a at_ns the other clock was ahead by offset_ns, give or take
 * half_ns, which is half of the round trip. */
struct stepaf_clock_probe {
    int64_t at_ns;
    int64_t offset_ns;
    int64_t half_ns;
};

/* Of a few seconds the best limits: from a probe with a short way there, and one with a short way
 * back. */
struct stepaf_clock_window {
    int64_t began_ns;
    int64_t low_at_ns, low_ns;
    int64_t high_at_ns, high_ns;
};

struct stepaf_clock_filter {
    bool known;       /* there was a probe */
    uint32_t n_jumps; /* probes that could not be: a clock was set, or ran apart by more */
    /* The offset lies between low and high, at at_ns. */
    int64_t at_ns, low_ns, high_ns;
    struct stepaf_clock_window windows[STEPAF_CLOCK_WINDOWS]; /* ascending */
    unsigned n_windows;
    double rate; /* that the windows show; 0: none yet */
    bool is_rated;
};

/* Take a probe. @a its_bound_ns: how far the other clock itself is from what is sought, at most. */
void stepaf_clock_filter_add(struct stepaf_clock_filter *filter, struct stepaf_clock_probe probe,
                             int64_t its_bound_ns);
/* Between what the offset is at @a ns. */
void stepaf_clock_filter_range(const struct stepaf_clock_filter *filter, int64_t ns,
                               int64_t *low_ns_p, int64_t *high_ns_p);
/* The offset at @a ns; it is known, and grows by rate. */
int64_t stepaf_clock_filter_offset(const struct stepaf_clock_filter *filter, int64_t ns);

/* What is added to this node's clock: a line, and until slew_over_ns have passed since at_ns a
 * further part that grows until it is slew_ns. So it never jumps, and time goes on. */
struct stepaf_clock_line {
    int64_t at_ns;
    int64_t offset_ns;
    double rate;
    int64_t slew_ns;
    int64_t slew_over_ns;
};

static inline int64_t stepaf_clock_line_at(const struct stepaf_clock_line *line, int64_t ns)
{
    int64_t since = ns - line->at_ns;
    double part = since <= 0                    ? 0
                  : since >= line->slew_over_ns ? 1
                                                : (double)since / (double)line->slew_over_ns;

    return line->offset_ns + (int64_t)(line->rate * (double)since + part * (double)line->slew_ns);
}

/* The line from @a line, at @a ns, to what the filter says. One that is far off, or that was none,
 * jumps. */
struct stepaf_clock_line stepaf_clock_line_to(const struct stepaf_clock_line *line,
                                              const struct stepaf_clock_filter *filter, int64_t ns);

#endif
