/* SPDX-License-Identifier: Apache-2.0 */
/* The message that follows an operation's writes, and its short form of 32 bits: all that both ends
 * have to agree on, whatever transport is between them. README.md has the table of types. */
#ifndef STEPAF_WIRE_MSG_H
#define STEPAF_WIRE_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A message: what a notification says. The numbers are the wire's. */
enum stepaf_msg_type {
    STEPAF_MSG_START = 1,    /* attention: the tensors of an operation have landed */
    STEPAF_MSG_RESPONSE = 2, /* FFN: its answer has landed */
    STEPAF_MSG_RELEASE = 3,  /* FFN: the receive buffers are free again */
    STEPAF_MSG_CANCEL = 4,   /* attention: nobody waits for this operation any more */
    STEPAF_MSG_PLAN = 5,     /* attention: a plan begins; TENSORs follow */
    STEPAF_MSG_TENSOR = 6,   /* attention: one tensor of it */
    STEPAF_MSG_CLOSE = 7,    /* attention: a plan ends */
    STEPAF_MSG_READY = 8,    /* both: my side of the commit is done */
    STEPAF_MSG_PING = 9,     /* what time is it? */
    STEPAF_MSG_PONG = 10,
    STEPAF_MSG_SYNCED = 11,   /* I need no more pings */
    STEPAF_MSG_BYE = 12,      /* I finalize */
    STEPAF_MSG_QUIESCED = 13, /* I have entered the commit, and nothing before it is to come */
    STEPAF_MSG_LANDED = 14,   /* both: some of an operation has, ahead of its START or RESPONSE */
    STEPAF_MSG_ASK = 15,      /* attention: when was what with the batch of that operation? */
    STEPAF_MSG_TELL = 16,     /* FFN: then */
    STEPAF_MSG_TOLD = 17,     /* attention: an operation was late, and whose time it was */
    STEPAF_MSG_TYPE_END = 18,
    STEPAF_MSG_TRANSPORT = 128 /* from here on: a transport's own, never seen by the core */
};

enum {
    STEPAF_MSG_RELEASED = 1 << 0,  /* RESPONSE: and the receive buffers are free */
    STEPAF_MSG_UNWANTED = 1 << 1,  /* RELEASE: the batch was not answered */
    STEPAF_MSG_PULL_SIDE = 1 << 2, /* TENSOR: an answer's destination */
    STEPAF_MSG_TIMED = 1 << 3,     /* RESPONSE: its times matter; RELEASE: it has them */
    STEPAF_MSG_WORDS = 10
};

struct stepaf_msg {
    uint8_t type; /* from here to n: the head */
    uint8_t flags;
    uint16_t epoch;
    uint16_t plan;
    uint8_t slot;
    uint8_t n; /* tensors whose actual bytes follow; 0: all as planned */
    uint32_t seq;
    uint32_t n_words; /* how many of word[] mean anything; what others hold is left open */
    uint32_t word[STEPAF_MSG_WORDS] __attribute__((aligned(8)));
};

_Static_assert(sizeof(struct stepaf_msg) == 56 && offsetof(struct stepaf_msg, seq) == 8,
               "the head is one 64-bit word");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages are little-endian");

/* Places in word[] of START and RESPONSE, and of a RELEASE that is TIMED. */
enum {
    STEPAF_MSG_QUEUE = 0, /* RESPONSE: how long the batch lay before it was taken, ns; UINT32_MAX:
                           * not told */
    STEPAF_MSG_WORK = 1,  /* RESPONSE: and from then to the answer, ns; likewise */
    STEPAF_MSG_SIZES = 2  /* actual bytes of the n tensors; of LANDED, too */
};

/* Places in word[] of LANDED, before the sizes. */
enum {
    STEPAF_MSG_TENSOR_INDEX = 0,
    STEPAF_MSG_HERE = 1 /* bytes of it that have landed, from its beginning */
};
/* As an index, where n is 0: of no tensor. The push has landed. */
#define STEPAF_MSG_NO_TENSOR UINT32_MAX

/* Places in word[] of TELL and TOLD; TELL has QUEUE and WORK as RESPONSE, and times are two
 * words. */
enum {
    STEPAF_MSG_GAP = 2,   /* TELL: ns up to the arrival in which the FFN rank had not looked */
    STEPAF_MSG_KNOWN = 3, /* TELL: 1: the batch was found, and the rest means something */
    STEPAF_MSG_ARRIVED =
        4, /* TELL: when, ns of the common clock; TOLD: when the operation was complete */
    STEPAF_MSG_PHASE = 0, /* TOLD: stepaf_verdict_phase_t */
    STEPAF_MSG_OVER = 1,  /* TOLD: ns of that beyond the usual */
    STEPAF_MSG_TOOK = 2,  /* TOLD: ns of the operation, and of the usual one */
    STEPAF_MSG_USUAL = 3,
    STEPAF_MSG_RAIL = 6,   /* both: the rail that was last with its share, plus 1; 0: none */
    STEPAF_MSG_HELD_UP = 7 /* TELL: ns that the others waited for it */
};

/* Set the head by one store. A transport that loads it as one word soon after then need not wait
 * until the processor has put narrow stores together. */
static inline void stepaf_msg_head(struct stepaf_msg *msg, enum stepaf_msg_type type,
                                   uint32_t flags, uint32_t epoch, uint32_t plan, uint32_t slot,
                                   uint32_t n)
{
    uint64_t head = (uint64_t)type | (uint64_t)flags << 8 | (uint64_t)(epoch & 0xffff) << 16 |
                    (uint64_t)plan << 32 | (uint64_t)slot << 48 | (uint64_t)n << 56;

    __builtin_memcpy(msg, &head, sizeof(head));
}

/* The commonest messages as 32 bits, for a network whose writes can carry that much: code, plan,
 * and the low bits of sequence and epoch, from which a receiver that knows the plan's state has the
 * rest (core/imm.h). */
enum {
    STEPAF_IMM_START = 0,    /* all as planned */
    STEPAF_IMM_RESPONSE = 1, /* all as planned; the FFN's times are not told: they are short */
    STEPAF_IMM_RELEASED = 2, /* the same, and the receive buffers are free */
    STEPAF_IMM_OTHER = 3,    /* the transport's own */
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

/* Say @a msg in 32 bits. False: it says more than they hold. */
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
