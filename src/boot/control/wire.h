/* SPDX-License-Identifier: Apache-2.0 */
/* The format of a control connection, little-endian: the greeting, in which both ends prove that
 * they know the job's secret, then frames, each sealed with a key of this connection and direction.
 *
 *   caller    hello, with its proof
 *   listener  challenge: a number of its own, with its proof; or a refusal: the secret is another,
 *             or, also with a proof, the caller wants a process that had this rank before, or takes
 *             the job for one of another size, which stands in place of the number
 *   caller    answer: a proof over both numbers
 *   both      frames: head, the announced data, mark; the listener's first is a welcome. Before it
 *             the caller does not know whether the answer was in time. */
#ifndef STEPAF_BOOT_CONTROL_WIRE_H
#define STEPAF_BOOT_CONTROL_WIRE_H

#include <stdint.h>

#include "base/proof.h"

/* The version changes with anything after the greeting, the magic numbers with the greeting
 * itself. */
static const uint32_t stepaf_control_anybody = UINT32_MAX;

enum { STEPAF_CONTROL_VERSION = 9, STEPAF_CONTROL_NONCE_BYTES = 16 };

static const uint64_t stepaf_control_hello_magic = 0x314f4c4c45484653;     /* "SFHELLO1" */
static const uint64_t stepaf_control_challenge_magic = 0x31474c4c48434653; /* "SFCHLLG1" */
static const uint64_t stepaf_control_refusal_magic = 0x3153554645524653;   /* "SFREFUS1" */
static const uint64_t stepaf_control_stale_magic = 0x31454c4154534653;     /* "SFSTALE1" */
static const uint64_t stepaf_control_size_magic = 0x31454e4f5a534653;      /* "SFSZONE1" */
static const uint64_t stepaf_control_answer_magic = 0x3152575341414653;    /* "SFAASWR1" */

struct stepaf_control_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t from, to; /* ranks; stepaf_control_anybody: any rank may listen there */
    uint32_t size;     /* of the job */
    uint32_t left_ms;  /* until the caller stops waiting */
    uint32_t life;     /* of the caller, as boot/consensus has it; 0 where ranks meet */
    uint16_t port;     /* where the caller itself listens */
    uint16_t unused;
    uint32_t life_called; /* of the called rank, as the caller knows it; 0: any */
    uint8_t session[STEPAF_CONTROL_NONCE_BYTES]; /* the job's; 0: ranks meet, or one returns */
    uint8_t nonce[STEPAF_CONTROL_NONCE_BYTES];   /* nonce by the caller */
};

struct stepaf_control_opening {
    struct stepaf_control_hello hello;
    uint8_t proof[STEPAF_PROOF_BYTES];
};

struct stepaf_control_challenge {
    uint64_t magic;
    uint8_t nonce[STEPAF_CONTROL_NONCE_BYTES]; /* nonce by the listener */
    uint8_t proof[STEPAF_PROOF_BYTES];
};

struct stepaf_control_answer {
    uint64_t magic;
    uint8_t proof[STEPAF_PROOF_BYTES];
};

/* The input of proofs and keys. */
struct stepaf_control_claim {
    uint64_t kind; /* a magic number, or the direction of a key */
    struct stepaf_control_hello hello;
    uint8_t nonce[STEPAF_CONTROL_NONCE_BYTES]; /* the listener's; 0 in a hello */
};

enum stepaf_control_type {
    STEPAF_CONTROL_TABLE = 1, /* rank 0: session and entries of all ranks; all are here */
    STEPAF_CONTROL_GATHER,    /* number: of the exchange; blocks of some ranks */
    STEPAF_CONTROL_TOKEN,     /* number: the group; "I have come this far" */
    STEPAF_CONTROL_FAIL,      /* number: the channel, detail: a rank or -1; status and sentence */
    STEPAF_CONTROL_LOST,      /* number: the rank */
    STEPAF_CONTROL_BYE,       /* this end leaves in good order */
    STEPAF_CONTROL_CONSENSUS, /* a message of the members' decisions, see boot/consensus */
    /* Between members and a process that is to take a lost rank's place, see
     * member_net_return.h. */
    STEPAF_CONTROL_ASK,
    STEPAF_CONTROL_STATE,
    STEPAF_CONTROL_REFUSE, /* number: the status, 0: not yet; detail: a rank or -1; a sentence */
    /* Between members, see member_net_gather.h. */
    STEPAF_CONTROL_WORDS, /* from a member to the first */
    STEPAF_CONTROL_ALL_WORDS,
    STEPAF_CONTROL_LEAVES,  /* 32 bits: whether the rank waits for the commit by which it leaves */
    STEPAF_CONTROL_WELCOME, /* the caller is admitted */
    /* number: the channel, detail: the rank that all wait for there, as far as the sender knows */
    STEPAF_CONTROL_WAITS
};

/* The head of a frame: followed by @a bytes of data, then a mark over all of it. */
struct stepaf_control_frame {
    uint32_t type;
    uint32_t number;
    uint32_t detail; /* the round, or as described above */
    uint32_t unused;
    uint64_t bytes;
};

/* Where a rank listens. */
struct stepaf_control_entry {
    uint8_t address[16]; /* IPv6, or IPv4-mapped */
    uint16_t port;
    uint8_t
        is_near; /* on rank 0's host: reachable at the address by which the reader reached rank 0 */
    uint8_t unused;
};

enum {
    STEPAF_CONTROL_TEXT_MAX = 320,       /* of a message */
    STEPAF_CONTROL_ASK_MAX = 64 << 20,   /* bytes from a process that is not a member yet */
    STEPAF_CONTROL_GATHER_MAX = 1 << 30, /* bytes in one frame */
    /* of a decision, which shares a frame with the words of one rank */
    STEPAF_CONTROL_VALUE_MAX = STEPAF_CONTROL_GATHER_MAX - STEPAF_CONTROL_ASK_MAX
};

_Static_assert(sizeof(struct stepaf_control_opening) == 104 &&
                   sizeof(struct stepaf_control_challenge) == 56 &&
                   sizeof(struct stepaf_control_answer) == 40 &&
                   sizeof(struct stepaf_control_claim) == 96 &&
                   sizeof(struct stepaf_control_frame) == 24 &&
                   sizeof(struct stepaf_control_entry) == 20,
               "no holes on the wire");

#endif
