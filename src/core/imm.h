/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding of messages in 32 bits (immediate data). */
#ifndef STEPAF_CORE_IMM_H
#define STEPAF_CORE_IMM_H

#include "transport/transport.h"

/* Return whether 32 bits are an answer at all. */
static inline bool stepaf_imm_is_answer(uint32_t imm)
{
    return (imm >> STEPAF_IMM_CODE_SHIFT) - STEPAF_IMM_RESPONSE <=
           STEPAF_IMM_RELEASED - STEPAF_IMM_RESPONSE;
}

struct stepaf_ctx;

/* Decode and deliver a message in 32 bits: the slow path. A message that makes no sense here is
 * counted. */
void stepaf_imm_deliver(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm);
/* Decode 32 bits that the peer made with stepaf_msg_to_imm. Return false if they make no sense
 * here. */
bool stepaf_imm_decode(const struct stepaf_ctx *ctx, const struct stepaf_link *link, uint32_t imm,
                       struct stepaf_msg *msg_p);

#endif
