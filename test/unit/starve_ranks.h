/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of which one, the victim, runs out of memory: in each trial at its next allocation, until
 * none is left. */
#ifndef STEPAF_TEST_STARVE_RANKS_H
#define STEPAF_TEST_STARVE_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <stepaf/stepaf.h>

#include "ranks.h"

enum { STARVE_INIT = 24 }; /* allocations, or some more */
enum { STARVE_RANKS = 3, STARVE_FFN = STARVE_RANKS - 1, STARVE_LIMIT_S = 20 };

/* How a trial ends for a rank. No rank's is COMPLETE unless all ranks' are. */
enum starve_end { STARVE_COMPLETE, STARVE_NOT_BEGUN, STARVE_BROKEN, STARVE_LOST, STARVE_ENDS };

struct starve_rank {
    const stepaf_boot_t *boot;
    stepaf_context_h ctx;
    bool ffn; /* all but rank 0 */
    bool is_victim;
    bool calls;      /* as the job's */
    bool once;       /* it has failed, and was tried again */
    uint8_t *memory; /* to be allocated */
    uint8_t *user;   /* the caller's own: as large as the job says */
};

struct starve_job {
    const char *transports;
    int victim;
    bool lasting;   /* nothing is to be had any more, until a call has said so */
    bool calls;     /* instead, system calls fail, and any failure may be tried again */
    bool traces;    /* into a file of their own */
    unsigned least; /* trials that are complete */
    unsigned begin; /* allocations that are not tried: init's, but for once */
    size_t bytes;   /* of the user's own memory */
    /* What a rank does once it has its context; returns how much was wrong. */
    int (*play)(struct starve_rank *rank, enum starve_end *end_p);
};

/* Try all, and assert that each comes to an end soon, and leaves nothing. */
void starve_ranks(const struct starve_job *job);

/* Whether to make the call again that has said @a status: for want of memory, the only time. */
bool starve_again(struct starve_rank *rank, stepaf_status_t status);

/* For what a rank does: leave if the call does not succeed, at the second time if it was for
 * memory. */
#define STARVE_TRY(rank_, call_)                              \
    do {                                                      \
        stepaf_status_t status_ = (call_);                    \
        if (starve_again((rank_), status_))                   \
            status_ = (call_);                                \
        if (status_)                                          \
            fprintf(stderr, "\n    status %d", (int)status_); \
        RANK_CHECK((rank_)->boot, status_ == STEPAF_OK);      \
    } while (0)

/* Commit; once more if the last epoch is still in force. */
int starve_commit(struct starve_rank *rank, enum starve_end *end_p);

#endif
