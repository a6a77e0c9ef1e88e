/* SPDX-License-Identifier: Apache-2.0 */
/* Messages in 32 bits. */
#ifndef STEPAF_CORE_IMM_H
#define STEPAF_CORE_IMM_H

#include "transport/transport.h"

bool stepaf_imm_decode(struct stepaf_upcalls *up, struct stepaf_link *link, uint32_t imm,
                       struct stepaf_msg *msg_p);

#endif
