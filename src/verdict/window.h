/* SPDX-License-Identifier: Apache-2.0 */
/* The last seconds: what late operations had in common. */
#ifndef STEPAF_VERDICT_WINDOW_H
#define STEPAF_VERDICT_WINDOW_H

#include "verdict/verdict.h"

/* False: out of memory. */
bool stepaf_window_open(struct stepaf_verdict_state *state);
void stepaf_window_close(struct stepaf_verdict_sums *window);
/* Go on to @a now_ns of CLOCK_MONOTONIC. */
void stepaf_window_turn(struct stepaf_verdict_state *state, int64_t now_ns);
/* Add a verdict. @a p: index of its peer, n_peers: this rank itself. */
void stepaf_window_add(struct stepaf_verdict_state *state, const stepaf_verdict_t *verdict,
                       uint32_t p);
/* One was late, but is not looked into. */
void stepaf_window_miss(struct stepaf_verdict_state *state);
/* The sums of a peer, or of this rank itself. */
struct stepaf_verdict_cell stepaf_window_cell(const struct stepaf_verdict_state *state, uint32_t p);
stepaf_verdict_window_t stepaf_window_sum(const struct stepaf_verdict_state *state);
/* What tools see; adding up takes a while where there are many peers, and is not done each time
 * there. */
void stepaf_window_show(struct stepaf_verdict_state *state, struct stepaf_metrics_verdict *shown);
/* Say it in a line of the log, if there is something new, and it has not been said for a second. */
void stepaf_window_log(struct stepaf_verdict_state *state, int64_t now_ns);

#endif
