/* SPDX-License-Identifier: Apache-2.0 */
/* Messages in 32 bits. */
#ifndef STEPAF_CORE_IMM_H
#define STEPAF_CORE_IMM_H

#include "transport/transport.h"

/* Whether 32 bits are an answer at all. */
static inline bool stepaf_imm_is_answer(uint32_t imm)
{
    return (imm >> STEPAF_IMM_CODE_SHIFT) - STEPAF_IMM_RESPONSE <=
           STEPAF_IMM_RELEASED - STEPAF_IMM_RESPONSE;
}

struct stepaf_ctx;

/* The long path of a message in 32 bits: decode and deliver it, or count that it makes no sense
 * here. */
void stepaf_imm_deliver(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm);
/* The message of 32 bits that stepaf_msg_to_imm has made at the peer. False: it makes no sense
 * here. */
bool stepaf_imm_decode(const struct stepaf_ctx *ctx, const struct stepaf_link *link, uint32_t imm,
                       struct stepaf_msg *msg_p);

#endif
