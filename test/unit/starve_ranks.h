/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of which one, the victim, runs out of memory: in each trial at its next allocation,
 * until every allocation has been tried. */
#ifndef STEPAF_TEST_STARVE_RANKS_H
#define STEPAF_TEST_STARVE_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <stepaf/stepaf.h>

#include "ranks.h"

enum { STARVE_INIT = 24 }; /* allocations, or some more */
enum { STARVE_RANKS = 3, STARVE_FFN = STARVE_RANKS - 1, STARVE_LIMIT_S = 20 };

/* The outcome of a trial for a rank. COMPLETE only if it is so for all ranks. */
enum starve_end { STARVE_COMPLETE, STARVE_NOT_BEGUN, STARVE_BROKEN, STARVE_LOST, STARVE_ENDS };

struct starve_rank {
    const stepaf_boot_t *boot;
    stepaf_context_h ctx;
    bool ffn; /* all but rank 0 */
    bool is_victim;
    bool calls;      /* as in the job */
    bool once;       /* it has failed, and was tried again */
    uint8_t *memory; /* to be allocated */
    uint8_t *user;   /* the caller's own: of the job's size */
};

struct starve_job {
    const char *transports;
    int victim;
    bool lasting;   /* all allocations fail, until a call has reported it */
    bool calls;     /* system calls fail instead, and any failure may be retried */
    bool traces;    /* into a file of their own */
    unsigned least; /* trials that are complete */
    unsigned begin; /* allocations to skip: init's, except once */
    size_t bytes;   /* of the user's own memory */
    /* The body of a rank once it has its context; returns the number of errors. */
    int (*play)(struct starve_rank *rank, enum starve_end *end_p);
};

/* Try all allocations, and assert that each trial ends soon and leaks nothing. */
void starve_ranks(const struct starve_job *job);

/* Return whether to repeat a call that returned @a status: only once, for lack of memory. */
bool starve_again(struct starve_rank *rank, stepaf_status_t status);

/* For bodies: return if the call does not succeed, after one retry for lack of memory. */
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
