/* SPDX-License-Identifier: Apache-2.0 */
/* One decision of the members of an epoch: who of them goes on, and what each of those has said.
 * README.md has the rules, and why two ranks never come to two decisions. Here is the machine
 * alone: it sends nothing by itself and knows no time, so that a test can play every order of
 * events. */
#ifndef STEPAF_BOOT_CONSENSUS_CONSENSUS_H
#define STEPAF_BOOT_CONSENSUS_CONSENSUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stepaf_consensus_blob {
    uint8_t *data; /* NULL: none */
    size_t bytes;
};

enum stepaf_consensus_kind {
    STEPAF_CONSENSUS_CALL = 1, /* to whom this rank takes for the leader: come to a decision */
    STEPAF_CONSENSUS_PREPARE, /* the leader: say what you have to say, and listen to no leader before me */
    STEPAF_CONSENSUS_PROMISE, /* I do: my own words, and what I have accepted of a leader before */
    STEPAF_CONSENSUS_ACCEPT,  /* the leader: this is to be the decision */
    STEPAF_CONSENSUS_ACCEPTED,
    STEPAF_CONSENSUS_DECIDED, /* it is; with it, for whoever has not accepted it */
    STEPAF_CONSENSUS_OUT,     /* you have been given up */
    STEPAF_CONSENSUS_LOSSES, /* somebody is lost, as every message says; nothing is to be decided */
    STEPAF_CONSENSUS_RESIGN  /* I have failed: go on without me, and believe nothing else of this */
};

/* What ranks say to each other. What it points to belongs to the caller. */
struct stepaf_consensus_message {
    uint32_t kind;
    uint32_t number;   /* of the decision */
    uint32_t ballot;   /* the leader's rank, and one; 0: none */
    uint32_t accepted; /* PROMISE: of what ballot the value is; 0: there is none */
    uint32_t life;     /* of the sender: see struct stepaf_consensus */
    const void *gone; /* 32 bits for each rank: how many of its lives the sender knows to be over */
    const void *own;  /* PROMISE: the sender's words */
    size_t own_bytes;
    const void *value; /* as stepaf_consensus_value_make makes it */
    size_t value_bytes;
};

typedef void (*stepaf_consensus_send_t)(void *arg, int to,
                                        const struct stepaf_consensus_message *message);

enum stepaf_consensus_state {
    STEPAF_CONSENSUS_ELSEWHERE, /* the exchange goes another way, or none is under way */
    STEPAF_CONSENSUS_OPEN,
    STEPAF_CONSENSUS_DONE,
    STEPAF_CONSENSUS_FAILED /* this rank has been given up, or too few are left */
};

/* What others want of a decision before this rank has opened it. */
struct stepaf_consensus_early {
    bool is_called; /* to make it here */
    int leader;     /* who has said PREPARE; -1: nobody */
};

/* The leader's part. */
struct stepaf_consensus_lead {
    bool leads;
    bool proposes;                       /* a value: else it still collects */
    bool *has_answered;                  /* by rank */
    struct stepaf_consensus_blob *blobs; /* what each has said */
    uint32_t best; /* ballot of the latest value that one has accepted; 0: none */
    struct stepaf_consensus_blob best_value;
};

struct stepaf_consensus {
    int rank, size;
    stepaf_consensus_send_t send;
    void *arg;
    bool *is_member; /* of the last epoch, by rank */
    /* A rank has one life after the other: each process that takes its place begins the next. How
     * many it has had is the same at all that have come to the same decision; that one of them is
     * over is never taken back, so what is said of a process never holds for the next one. */
    uint32_t *lives, *gone; /* by rank: begun, and over */
    uint32_t n_lost;        /* lives that were found to be over */
    bool is_out;            /* others have given this rank up */
    enum stepaf_consensus_state state;
    uint32_t number;                         /* of the last decision begun */
    struct stepaf_consensus_early now, next; /* of this decision, and of the one after it */
    bool stays; /* one was made here, or somebody has left: so are all that follow */
    struct stepaf_consensus_blob own;
    uint32_t promised, accepted;         /* ballots */
    struct stepaf_consensus_blob value;  /* accepted, or decided */
    struct stepaf_consensus_blob before; /* the decision before, until all have come to this one */
    struct stepaf_consensus_lead lead;
    bool is_starved; /* there was no memory: it can take part no more */
};

/* False: no memory. All are members, in their first lives, and nobody is lost. */
bool stepaf_consensus_init(struct stepaf_consensus *consensus, int rank, int size,
                           stepaf_consensus_send_t send, void *arg);
void stepaf_consensus_free(struct stepaf_consensus *consensus);

/* The next decision is due. It may be made elsewhere, by an exchange of all, as long as nobody
 * calls (stepaf_consensus_is_called). */
void stepaf_consensus_next(struct stepaf_consensus *consensus);
bool stepaf_consensus_is_called(const struct stepaf_consensus *consensus);
/* It is to be made here; what this rank says is copied. */
void stepaf_consensus_open(struct stepaf_consensus *consensus, const void *own, size_t bytes);
/* It has been made elsewhere: the value is copied, for those who ask. NULL: there was no memory for
 * it. */
void stepaf_consensus_learn(struct stepaf_consensus *consensus, const void *value, size_t bytes);
/* All have come to it: nobody asks for it any more. */
void stepaf_consensus_forget(struct stepaf_consensus *consensus);

/* A rank has ended, or cannot be reached. */
void stepaf_consensus_lose(struct stepaf_consensus *consensus, int rank);
static inline bool stepaf_consensus_has_lost(const struct stepaf_consensus *consensus, int rank)
{
    return consensus->gone[rank] >= consensus->lives[rank];
}
/* As the decision that has been made says, a process takes the place of a rank that is lost. It
 * takes part in all later ones. */
void stepaf_consensus_admit(struct stepaf_consensus *consensus, int rank);
/* This rank is such a process, admitted by the decision @a number, whose value is copied; lives,
 * gone and members are set to those of the others before. False: no memory. */
bool stepaf_consensus_return(struct stepaf_consensus *consensus, uint32_t number, const void *value,
                             size_t bytes);
/* Tell another rank who is lost. */
void stepaf_consensus_report(struct stepaf_consensus *consensus, int to);
/* What another rank has said. False: nobody says that who goes by the rules. */
bool stepaf_consensus_take(struct stepaf_consensus *consensus, int from,
                           const struct stepaf_consensus_message *message);
/* Nobody has had that rank yet: it is as one that was lost, and is no member any more. Before the
 * first decision. */
void stepaf_consensus_vacate(struct stepaf_consensus *consensus, int rank);
/* The members of a new epoch: a byte for each rank. */
void stepaf_consensus_set_members(struct stepaf_consensus *consensus, const uint8_t *is_member);

/* What a message says of a rank: how many of its lives are over. */
uint32_t stepaf_consensus_gone_by(const struct stepaf_consensus_message *message, int rank);

/* Whether the members that are not lost are more than half, or half with the first. */
bool stepaf_consensus_is_majority(const struct stepaf_consensus *consensus);
/* Whom this rank waits for; -1: nobody. */
int stepaf_consensus_awaited(const struct stepaf_consensus *consensus);

/* ---- value.c ---- */

/* Pack what each rank has said, NULL: it is not there. The caller's to free; NULL: no memory. */
uint8_t *stepaf_consensus_value_make(const struct stepaf_consensus_blob *blobs, int size,
                                     size_t *bytes_p);
/* Find what each has said in a value; false: it is none. blobs_p points into it; NULL: only look. */
bool stepaf_consensus_value_read(const void *value, size_t bytes,
                                 struct stepaf_consensus_blob *blobs_p, int size);

/* A message on the wire; NULL: no memory. The caller's to free. */
uint8_t *stepaf_consensus_message_pack(const struct stepaf_consensus_message *message, int size,
                                       size_t *bytes_p);
/* message_p points into it. False: it is none. */
bool stepaf_consensus_message_read(const void *data, size_t bytes, int size,
                                   struct stepaf_consensus_message *message_p);

#endif
