/* SPDX-License-Identifier: Apache-2.0 */
/* The last seconds: sums over late operations and their verdicts. */
#ifndef STEPAF_VERDICT_WINDOW_H
#define STEPAF_VERDICT_WINDOW_H

#include "verdict/verdict.h"

/* Return false if out of memory. */
bool stepaf_window_open(struct stepaf_verdict_state *state);
void stepaf_window_close(struct stepaf_verdict_sums *window);
/* Advance the window to @a now_ns of CLOCK_MONOTONIC. */
void stepaf_window_turn(struct stepaf_verdict_state *state, int64_t now_ns);
/* Add a verdict. @a p: index of its peer, n_peers: this rank itself. */
void stepaf_window_add(struct stepaf_verdict_state *state, const stepaf_verdict_t *verdict,
                       uint32_t p);
/* Count a late operation that is not examined. */
void stepaf_window_miss(struct stepaf_verdict_state *state);
/* Return the sums of a peer, or of this rank itself. */
struct stepaf_verdict_cell stepaf_window_cell(const struct stepaf_verdict_state *state, uint32_t p);
stepaf_verdict_window_t stepaf_window_sum(const struct stepaf_verdict_state *state);
/* Fill in what tools see. Summing takes a while with many peers, and is not done at every call. */
void stepaf_window_show(struct stepaf_verdict_state *state, struct stepaf_metrics_verdict *shown);
/* Log a line if there is something new, and nothing was logged for a second. */
void stepaf_window_log(struct stepaf_verdict_state *state, int64_t now_ns);

#endif
