/* SPDX-License-Identifier: Apache-2.0 */
/* One decision of the members of an epoch: which of them continue, and what each of these has said.
 * README.md has the rules, and why two ranks never reach different decisions. This is the machine
 * alone: it sends nothing by itself and has no clock, so that a test can play every order of
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
    /* To the rank that the sender takes for the leader: begin the decision. */
    STEPAF_CONSENSUS_CALL = 1,
    /* From the leader: send me your words, and promise to follow no earlier leader. */
    STEPAF_CONSENSUS_PREPARE,
    /* I promise: my words, and what I have accepted of an earlier leader. */
    STEPAF_CONSENSUS_PROMISE,
    STEPAF_CONSENSUS_ACCEPT, /* from the leader: this is to be the decision */
    STEPAF_CONSENSUS_ACCEPTED,
    /* It is decided; with the value for ranks that have not accepted it. */
    STEPAF_CONSENSUS_DECIDED,
    STEPAF_CONSENSUS_OUT,    /* you have been declared lost */
    STEPAF_CONSENSUS_LOSSES, /* a rank is lost, as every message says; nothing is to be decided */
    /* I have failed: go on without me, and believe nothing else in this message. */
    STEPAF_CONSENSUS_RESIGN
};

/* What ranks send to each other. The data that a message points to belong to the caller. */
struct stepaf_consensus_message {
    uint32_t kind;
    uint32_t number;   /* of the decision */
    uint32_t ballot;   /* see stepaf_consensus_ballot; 0: none */
    uint32_t accepted; /* PROMISE: the ballot of the value; 0: there is none */
    uint32_t life;     /* of the sender: see struct stepaf_consensus */
    const void *gone; /* 32 bits for each rank: how many of its lives the sender knows to be over */
    const void *own;  /* PROMISE: the sender's words */
    size_t own_bytes;
    const void *value; /* in the form of stepaf_consensus_value_make */
    size_t value_bytes;
};

typedef void (*stepaf_consensus_send_t)(void *arg, int to,
                                        const struct stepaf_consensus_message *message);

enum stepaf_consensus_state {
    STEPAF_CONSENSUS_ELSEWHERE, /* the decision is made by an exchange, or none is in progress */
    STEPAF_CONSENSUS_OPEN,
    STEPAF_CONSENSUS_DONE,
    STEPAF_CONSENSUS_FAILED /* this rank has been declared lost, or too few are left */
};

/* What others have asked for a decision before this rank has opened it. */
struct stepaf_consensus_early {
    bool is_called;  /* to make the decision here */
    uint32_t ballot; /* the latest for which a rank has sent PREPARE; 0: none */
};

/* The state of the leader. */
struct stepaf_consensus_lead {
    bool leads;
    bool proposes;                       /* a value; false: it still collects words */
    bool *has_answered;                  /* by rank */
    struct stepaf_consensus_blob *blobs; /* the words of each rank */
    uint32_t best; /* latest ballot of a value that a rank has accepted; 0: none */
    struct stepaf_consensus_blob best_value;
};

struct stepaf_consensus {
    int rank, size;
    stepaf_consensus_send_t send;
    void *arg;
    bool *is_member; /* of the last epoch, by rank */
    bool *is_new;    /* by rank: admitted by the commit that is in progress */
    /* A rank has one life after the other: each process that takes its place begins the next. The
     * number of its lives is the same at all ranks that have reached the same decision. That a life
     * is over is never taken back. So what is said about one process never applies to the next. */
    uint32_t *lives, *gone; /* by rank: lives begun, and lives over */
    uint32_t n_lost;        /* lives that were found to be over */
    bool is_out;            /* others have declared this rank lost */
    enum stepaf_consensus_state state;
    uint32_t number;                         /* of the last decision begun */
    struct stepaf_consensus_early now, next; /* for this decision, and for the one after it */
    bool stays; /* a decision was made here, or a rank has left: all later ones are made here */
    struct stepaf_consensus_blob own;
    uint32_t promised, accepted;        /* ballots */
    struct stepaf_consensus_blob value; /* accepted, or decided */
    /* The previous decision, until all have reached this one. */
    struct stepaf_consensus_blob before;
    struct stepaf_consensus_lead lead;
    bool is_starved;   /* there was no memory: this rank can no longer take part */
    size_t value_max;  /* bytes that others receive; 0: no limit */
    bool is_too_large; /* the words of all are more, so that this rank could not lead */
};

/* Initialize: all ranks are members, in their first lives, and none is lost. Returns false if there
 * is no memory. */
bool stepaf_consensus_init(struct stepaf_consensus *consensus, int rank, int size,
                           stepaf_consensus_send_t send, void *arg);
void stepaf_consensus_free(struct stepaf_consensus *consensus);

/* Begin the next decision. It may be made elsewhere, by an exchange of all ranks, as long as no
 * rank calls (stepaf_consensus_is_called). */
void stepaf_consensus_next(struct stepaf_consensus *consensus);
bool stepaf_consensus_is_called(const struct stepaf_consensus *consensus);
/* Open the decision: it is made here. The words of this rank are copied. */
void stepaf_consensus_open(struct stepaf_consensus *consensus, const void *own, size_t bytes);
/* Take a decision that was made elsewhere: the value is copied, for ranks that ask. NULL: there was
 * no memory for the value. */
void stepaf_consensus_learn(struct stepaf_consensus *consensus, const void *value, size_t bytes);
/* Forget the previous decision: all have reached this one, so that no rank asks for it any more. */
void stepaf_consensus_forget(struct stepaf_consensus *consensus);

/* Mark a rank as lost: it has ended, or cannot be reached. */
void stepaf_consensus_lose(struct stepaf_consensus *consensus, int rank);
static inline bool stepaf_consensus_has_lost(const struct stepaf_consensus *consensus, int rank)
{
    return consensus->gone[rank] >= consensus->lives[rank];
}
/* Admit a process in the place of a lost rank, as the decision that has been made says. The process
 * takes part in all later decisions. */
void stepaf_consensus_admit(struct stepaf_consensus *consensus, int rank);
/* Make this rank such a process, admitted by the decision @a number, whose value is copied; lives,
 * gone and members are set to those that the others had before. Returns false if there is no
 * memory. */
bool stepaf_consensus_return(struct stepaf_consensus *consensus, uint32_t number, const void *value,
                             size_t bytes);
/* Tell another rank which ranks are lost. */
void stepaf_consensus_report(struct stepaf_consensus *consensus, int to);
/* Take a message of another rank. Returns false if no rank that follows the rules sends it. */
bool stepaf_consensus_take(struct stepaf_consensus *consensus, int from,
                           const struct stepaf_consensus_message *message);
/* Mark a rank that no process has had yet: it is treated as a lost rank, and is no longer a member.
 * Call before the first decision. */
void stepaf_consensus_vacate(struct stepaf_consensus *consensus, int rank);
/* Set the members of a new epoch: a byte for each rank. */
void stepaf_consensus_set_members(struct stepaf_consensus *consensus, const uint8_t *is_member);
/* Set which ranks are new, a byte for each rank; NULL: none. A new rank leads only if no other
 * member is left. Call between two decisions; all ranks set the same for the same decision. */
void stepaf_consensus_set_new(struct stepaf_consensus *consensus, const uint8_t *is_new);

/* Return how many lives of a rank are over, according to a message. */
uint32_t stepaf_consensus_gone_by(const struct stepaf_consensus_message *message, int rank);

/* Return whether the members that are not lost are more than half, or half including the first. */
bool stepaf_consensus_is_majority(const struct stepaf_consensus *consensus);
/* Return the rank that this rank waits for; -1: none. */
int stepaf_consensus_awaited(const struct stepaf_consensus *consensus);
/* Return whether this rank leads, and the rank has not answered its last question. */
bool stepaf_consensus_is_silent(const struct stepaf_consensus *consensus, int rank);

/* ---- value.c ---- */

/* Pack the words of each rank; NULL: the rank has none. The caller frees the value; NULL: no
 * memory. */
uint8_t *stepaf_consensus_value_make(const struct stepaf_consensus_blob *blobs, int size,
                                     size_t *bytes_p);
/* Find the words of each rank in a value; returns false if @a value is invalid. blobs_p points into
 * it; NULL: only check. */
bool stepaf_consensus_value_read(const void *value, size_t bytes,
                                 struct stepaf_consensus_blob *blobs_p, int size);

/* Pack a message for the wire; NULL: no memory. The caller frees the data. */
uint8_t *stepaf_consensus_message_pack(const struct stepaf_consensus_message *message, int size,
                                       size_t *bytes_p);
/* Read a message; message_p points into the data. Returns false if they are invalid. */
bool stepaf_consensus_message_read(const void *data, size_t bytes, int size,
                                   struct stepaf_consensus_message *message_p);

#endif
