/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts in the public interface. */
#include <stepaf/verdict.h>

#include <string.h>

#include "api/fill.h"
#include "api/handles.h"
#include "verdict/verdict.h"
#include "verdict/window.h"

/* Enter the context, if it has verdicts. */
static stepaf_status_t enter_verdicts(stepaf_context_h handle, struct stepaf_ctx **ctx_p,
                                      struct stepaf_verdict_state **state_p)
{
    stepaf_status_t status = stepaf_enter_context(handle, ctx_p);

    if (status)
        return status;
    *state_p = stepaf_verdict_of(*ctx_p);
    if (!*state_p) {
        status =
            stepaf_error_set(STEPAF_ERR_UNSUPPORTED, STEPAF_PHASE_NONE,
                             "no verdicts are recorded: set STEPAF_VERDICT=on and STEPAF_TRACE=on");
        stepaf_leave(*ctx_p);
        return status;
    }
    stepaf_window_turn(*state_p, stepaf_monotonic_ns());
    return STEPAF_OK;
}

stepaf_status_t stepaf_verdict_query(stepaf_context_h handle, stepaf_verdict_window_t *window_p)
{
    struct stepaf_verdict_state *state;
    struct stepaf_ctx *ctx;
    stepaf_status_t status = enter_verdicts(handle, &ctx, &state);

    if (status)
        return status;
    if (window_p) {
        stepaf_verdict_window_t window = stepaf_window_sum(state);
        status = stepaf_fill(window_p, "stepaf_verdict_window_t", STEPAF_FIRST_VERDICT_WINDOW,
                             &window, sizeof(window));
    } else {
        status = stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "window_p is NULL");
    }
    stepaf_leave(ctx);
    return status;
}

stepaf_status_t stepaf_verdict_peer(stepaf_context_h handle, int peer_rank,
                                    stepaf_verdict_peer_t *peer_p)
{
    struct stepaf_verdict_state *state;
    struct stepaf_ctx *ctx;
    stepaf_status_t status = enter_verdicts(handle, &ctx, &state);

    if (status)
        return status;
    int p = stepaf_find_peer(ctx, peer_rank);
    if (p < 0 || !peer_p) {
        status =
            stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
                             "rank %d is not a peer of this rank, or peer_p is NULL", peer_rank);
    } else {
        struct stepaf_verdict_cell cell = stepaf_window_cell(state, (uint32_t)p);
        stepaf_verdict_peer_t peer = {.late = 0};
        for (int i = 0; i < STEPAF_VERDICT_PHASES; i++) {
            peer.by_phase[i] = cell.late[i];
            peer.over_ns[i] = cell.over_ns[i];
            peer.late += cell.late[i];
        }
        status = stepaf_fill(peer_p, "stepaf_verdict_peer_t", STEPAF_FIRST_VERDICT_PEER, &peer,
                             sizeof(peer));
    }
    stepaf_leave(ctx);
    return status;
}

/* Copy the newest verdicts. Return how many. */
static size_t copy_kept(const struct stepaf_verdict_sums *window, void *verdicts_p, size_t size,
                        size_t capacity)
{
    uint64_t n = window->n_kept < STEPAF_VERDICT_KEPT ? window->n_kept : STEPAF_VERDICT_KEPT;
    size_t bytes = size < sizeof(stepaf_verdict_t) ? size : sizeof(stepaf_verdict_t);

    if (n > capacity)
        n = capacity;
    for (uint64_t i = 0; i < n; i++)
        memcpy((char *)verdicts_p + i * size,
               &window->kept[(window->n_kept - n + i) % STEPAF_VERDICT_KEPT], bytes);
    return n;
}

stepaf_status_t stepaf_verdict_read(stepaf_context_h handle, stepaf_verdict_t *verdicts_p,
                                    size_t verdict_size, size_t capacity, size_t *n_p)
{
    struct stepaf_verdict_state *state;
    struct stepaf_ctx *ctx;
    stepaf_status_t status = enter_verdicts(handle, &ctx, &state);

    if (status)
        return status;
    if (!n_p || (capacity && !verdicts_p))
        status =
            stepaf_error_set(STEPAF_ERR_INVALID, STEPAF_PHASE_NONE, "verdicts_p or n_p is NULL");
    else if (verdict_size < STEPAF_FIRST_VERDICT)
        status = stepaf_error_set(
            STEPAF_ERR_INVALID, STEPAF_PHASE_NONE,
            "verdict_size is %zu, which is less than %d: pass sizeof(stepaf_verdict_t)",
            verdict_size, STEPAF_FIRST_VERDICT);
    else
        *n_p = copy_kept(&state->window, verdicts_p, verdict_size, capacity);
    stepaf_leave(ctx);
    return status;
}
