/* SPDX-License-Identifier: Apache-2.0 */
/* The message that follows an operation's writes, and its short form of 32 bits: everything that
 * both ends must agree on, independent of the transport. README.md has the table of types. */
#ifndef STEPAF_WIRE_MSG_H
#define STEPAF_WIRE_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Message types. The numbers are part of the wire format. */
enum stepaf_msg_type {
    STEPAF_MSG_START = 1,    /* attention: the tensors of an operation have landed */
    STEPAF_MSG_RESPONSE = 2, /* FFN: the answer of an operation has landed */
    STEPAF_MSG_RELEASE = 3,  /* FFN: the receive buffers are free again */
    STEPAF_MSG_CANCEL = 4,   /* attention: nobody waits for this operation any longer */
    STEPAF_MSG_PLAN = 5,     /* attention: a plan begins; TENSORs follow */
    STEPAF_MSG_TENSOR = 6,   /* attention: one tensor of a plan */
    STEPAF_MSG_CLOSE = 7,    /* attention: a plan ends */
    STEPAF_MSG_READY = 8,    /* both: the sender's part of the commit is done */
    STEPAF_MSG_PING = 9,     /* clock probe */
    STEPAF_MSG_PONG = 10,
    STEPAF_MSG_SYNCED = 11, /* the sender needs no more pings */
    STEPAF_MSG_BYE = 12,    /* the sender finalizes */
    /* the sender has entered the commit; nothing from before it will follow */
    STEPAF_MSG_QUIESCED = 13,
    /* both: a part of an operation has landed, ahead of its START or RESPONSE */
    STEPAF_MSG_LANDED = 14,
    STEPAF_MSG_ASK = 15,  /* attention: request for the times of an operation's batch */
    STEPAF_MSG_TELL = 16, /* FFN: these times */
    STEPAF_MSG_TOLD = 17, /* attention: an operation was late, and where its time went */
    STEPAF_MSG_TYPE_END = 18,
    STEPAF_MSG_TRANSPORT = 128 /* from here on: internal to a transport, never seen by the core */
};

enum {
    STEPAF_MSG_RELEASED = 1 << 0,  /* RESPONSE: the receive buffers are free, too */
    STEPAF_MSG_UNWANTED = 1 << 1,  /* RELEASE: the batch was not answered */
    STEPAF_MSG_PULL_SIDE = 1 << 2, /* TENSOR: an answer's destination */
    STEPAF_MSG_TIMED = 1 << 3,     /* RESPONSE: its times matter; RELEASE: it carries times */
    STEPAF_MSG_WORDS = 10
};

struct stepaf_msg {
    uint8_t type; /* type to n: the head */
    uint8_t flags;
    uint16_t epoch;
    uint16_t plan;
    uint8_t slot;
    uint8_t n; /* tensors whose actual bytes follow; 0: all as planned */
    uint32_t seq;
    uint32_t n_words; /* valid words in word[]; the others are undefined */
    uint32_t word[STEPAF_MSG_WORDS] __attribute__((aligned(8)));
};

_Static_assert(sizeof(struct stepaf_msg) == 56 && offsetof(struct stepaf_msg, seq) == 8,
               "the head is one 64-bit word");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages are little-endian");

/* Indexes in word[] of START and RESPONSE, and of a RELEASE that is TIMED. */
enum {
    /* RESPONSE: ns from the batch's arrival until it was taken; UINT32_MAX: unknown */
    STEPAF_MSG_QUEUE = 0,
    STEPAF_MSG_WORK = 1, /* RESPONSE: ns from then to the answer; UINT32_MAX: unknown */
    STEPAF_MSG_SIZES = 2 /* actual bytes of the n tensors; also of LANDED */
};

/* Indexes in word[] of LANDED, before the sizes. */
enum {
    STEPAF_MSG_TENSOR_INDEX = 0,
    STEPAF_MSG_HERE = 1 /* bytes of the tensor that have landed, from its start */
};
/* Tensor index if n is 0: no tensor; the push has landed. */
#define STEPAF_MSG_NO_TENSOR UINT32_MAX

/* Indexes in word[] of TELL and TOLD. TELL has QUEUE and WORK as RESPONSE has; times take two
 * words. */
enum {
    STEPAF_MSG_GAP = 2,   /* TELL: ns before the arrival during which the FFN rank had not polled */
    STEPAF_MSG_KNOWN = 3, /* TELL: 1: the batch was found, and the other words are valid */
    STEPAF_MSG_ARRIVED =
        4, /* TELL: arrival, ns of the common clock; TOLD: when the operation was complete */
    STEPAF_MSG_PHASE = 0, /* TOLD: stepaf_verdict_phase_t */
    STEPAF_MSG_OVER = 1,  /* TOLD: ns of that phase beyond the usual */
    STEPAF_MSG_TOOK = 2,  /* TOLD: ns of the operation; next: of the usual one */
    STEPAF_MSG_USUAL = 3,
    STEPAF_MSG_RAIL = 6,   /* both: the rail that was last with its share, plus 1; 0: none */
    STEPAF_MSG_HELD_UP = 7 /* TELL: ns that the other rails waited for that rail */
};

/* Set the head with one store. A transport that loads the head as one word soon after need not wait
 * until the CPU has merged narrow stores. */
static inline void stepaf_msg_head(struct stepaf_msg *msg, enum stepaf_msg_type type,
                                   uint32_t flags, uint32_t epoch, uint32_t plan, uint32_t slot,
                                   uint32_t n)
{
    uint64_t head = (uint64_t)type | (uint64_t)flags << 8 | (uint64_t)(epoch & 0xffff) << 16 |
                    (uint64_t)plan << 32 | (uint64_t)slot << 48 | (uint64_t)n << 56;

    __builtin_memcpy(msg, &head, sizeof(head));
}

/* The most frequent messages as 32 bits, for networks whose writes carry that much: code, plan, and
 * the low bits of sequence and epoch. The receiver derives the rest from the plan's state
 * (core/imm.h). */
enum {
    STEPAF_IMM_START = 0,    /* all as planned */
    STEPAF_IMM_RESPONSE = 1, /* all as planned; the FFN rank's times are short and not reported */
    STEPAF_IMM_RELEASED = 2, /* the same, and the receive buffers are free */
    STEPAF_IMM_OTHER = 3,    /* used by the transport itself */
    STEPAF_IMM_CODE_SHIFT = 30,
    STEPAF_IMM_PLAN_SHIFT = 14,
    STEPAF_IMM_SEQ_SHIFT = 4,
    STEPAF_IMM_SEQ_BITS = 10,
    STEPAF_IMM_SEQ_MASK = (1 << STEPAF_IMM_SEQ_BITS) - 1,
    STEPAF_IMM_EPOCH_BITS = 4,
    STEPAF_IMM_EPOCH_MASK = (1 << STEPAF_IMM_EPOCH_BITS) - 1,
    STEPAF_IMM_SAME_MASK = (1 << STEPAF_IMM_CODE_SHIFT) - 1 /* all but the code */
};

static inline uint32_t stepaf_imm_make(uint32_t code, uint32_t plan, uint32_t seq, uint32_t epoch)
{
    return code << STEPAF_IMM_CODE_SHIFT | plan << STEPAF_IMM_PLAN_SHIFT |
           (seq & STEPAF_IMM_SEQ_MASK) << STEPAF_IMM_SEQ_SHIFT | (epoch & STEPAF_IMM_EPOCH_MASK);
}

static inline uint32_t stepaf_imm_plan(uint32_t imm)
{
    return imm >> STEPAF_IMM_PLAN_SHIFT & 0xffff;
}

/* Encode @a msg in 32 bits. Return false if it does not fit. */
static inline bool stepaf_msg_to_imm(const struct stepaf_msg *msg, uint32_t *imm_p)
{
    uint32_t code = STEPAF_IMM_START;

    if (msg->n || msg->flags & STEPAF_MSG_TIMED)
        return false;
    if (msg->type == STEPAF_MSG_RESPONSE)
        code = msg->flags & STEPAF_MSG_RELEASED ? STEPAF_IMM_RELEASED : STEPAF_IMM_RESPONSE;
    else if (msg->type != STEPAF_MSG_START || msg->n_words)
        return false;
    *imm_p = stepaf_imm_make(code, msg->plan, msg->seq, msg->epoch);
    return true;
}

#endif
