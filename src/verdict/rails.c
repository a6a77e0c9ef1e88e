/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several rails was late with a message. Transports report each message that came over
 * several rails. */
#include "verdict/rails.h"
#include "core/imm.h"

void stepaf_verdict_held_up(struct stepaf_upcalls *up, struct stepaf_link *link,
                            const struct stepaf_msg *msg, uint32_t imm, unsigned rail,
                            uint64_t ticks)
{
    const struct stepaf_ctx *ctx = (const struct stepaf_ctx *)up;
    struct stepaf_verdict_state *state = (struct stepaf_verdict_state *)ctx->polling.watch;
    struct stepaf_msg meant;

    if (!msg) {
        if (!stepaf_imm_decode(ctx, link, imm, &meant))
            return;
        msg = &meant;
    }
    if (msg->type != STEPAF_MSG_START && msg->type != STEPAF_MSG_RESPONSE)
        return;
    state->held_up[state->n_held_up++ % STEPAF_VERDICT_HELD_UP] =
        (struct stepaf_verdict_held_up){link->peer, msg->plan, msg->seq, rail, ticks};
}

struct stepaf_verdict_late_rail stepaf_verdict_find_rail(const struct stepaf_verdict_state *state,
                                                         uint32_t p, uint32_t plan, uint32_t seq)
{
    uint64_t kept =
        state->n_held_up < STEPAF_VERDICT_HELD_UP ? state->n_held_up : STEPAF_VERDICT_HELD_UP;

    for (uint64_t i = state->n_held_up; i-- > state->n_held_up - kept;) {
        const struct stepaf_verdict_held_up *one = &state->held_up[i % STEPAF_VERDICT_HELD_UP];
        if (one->seq == seq && one->plan == plan && one->p == p)
            return (struct stepaf_verdict_late_rail){
                (int32_t)one->rail,
                (int64_t)((double)one->ticks * state->ctx->clock.own.ns_per_tick)};
    }
    return (struct stepaf_verdict_late_rail){-1, 0};
}
