/* SPDX-License-Identifier: Apache-2.0 */
/* How far another node's clock is from this node's, from probes that go there and back.
 *
 * A probe gives an interval that contains the offset: the other node read its clock somewhere in
 * the round trip. Intervals are intersected, and grow with time by what two clocks can run apart.
 * So the offset is in the remaining interval, whatever the network does. Within it, the estimate
 * uses the probes of a minute with the shortest way there, and those with the shortest way back:
 * each limits the offset on one side. The other clock's rate is the one at which these limits leave
 * the widest corridor. The middle of the corridor is the best guess as long as the shortest ways
 * there and back take the same time; the estimate is off by half of their difference. */
#ifndef STEPAF_BASE_CLOCK_FILTER_H
#define STEPAF_BASE_CLOCK_FILTER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    STEPAF_CLOCK_WINDOWS = 32,
    STEPAF_CLOCK_DRIFT_PPM = 200 /* maximum rate by which two clocks run apart */
};

/* A probe: at this node's time at_ns the other clock was ahead by offset_ns, plus or minus half_ns,
 * which is half of the round trip. */
struct stepaf_clock_probe {
    int64_t at_ns;
    int64_t offset_ns;
    int64_t half_ns;
};

/* The best limits of a few seconds: from a probe with a short way there, and one with a short way
 * back. */
struct stepaf_clock_window {
    int64_t began_ns;
    int64_t low_at_ns, low_ns;
    int64_t high_at_ns, high_ns;
};

struct stepaf_clock_filter {
    bool known;       /* there was a probe */
    uint32_t n_jumps; /* impossible probes: a clock was set, or ran apart by more */
    /* The offset lies between low_ns and high_ns, at at_ns. */
    int64_t at_ns, low_ns, high_ns;
    struct stepaf_clock_window windows[STEPAF_CLOCK_WINDOWS]; /* ascending */
    unsigned n_windows;
    double rate; /* as the windows show; 0: none yet */
    bool is_rated;
};

/* Add a probe. @a its_bound_ns: maximum error of the other clock itself. */
void stepaf_clock_filter_add(struct stepaf_clock_filter *filter, struct stepaf_clock_probe probe,
                             int64_t its_bound_ns);
/* Return the limits of the offset at @a ns. */
void stepaf_clock_filter_range(const struct stepaf_clock_filter *filter, int64_t ns,
                               int64_t *low_ns_p, int64_t *high_ns_p);
/* Return the estimated offset at @a ns. The filter must be known. The offset grows by rate. */
int64_t stepaf_clock_filter_offset(const struct stepaf_clock_filter *filter, int64_t ns);

/* What is added to this node's clock: a line and, until slew_over_ns after at_ns, a further part
 * that grows to slew_ns. So the sum never jumps, and time goes on. */
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

/* Continue @a line, at @a ns, towards what the filter says. A line that is far off, or has not
 * begun, jumps. */
struct stepaf_clock_line stepaf_clock_line_to(const struct stepaf_clock_line *line,
                                              const struct stepaf_clock_filter *filter, int64_t ns);

#endif
