/* SPDX-License-Identifier: Apache-2.0 */
/* Membership: who is in the epoch, who is lost, and who is merely slow. That a rank is slow, or lost to this one, is an
 * observation. That it is out is a decision of a commit (stepaf_commit_with), the same at all ranks. */
#ifndef STEPAF_MEMBERS_H
#define STEPAF_MEMBERS_H

#include <stdint.h>

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What this rank knows of another one. */
typedef enum stepaf_member_state {
    STEPAF_MEMBER_IN = 0, /* a member of the epoch */
    STEPAF_MEMBER_SLOW =
        1, /* the same, but it owes this rank an answer for longer than STEPAF_SLOW_US */
    STEPAF_MEMBER_LOST = 2,   /* the same, but it has ended, or cannot be reached */
    STEPAF_MEMBER_OUT = 3,    /* the epoch goes on without it */
    STEPAF_MEMBER_ASKS = 4,   /* it is lost or out, and a process asks to take its place */
    STEPAF_MEMBER_LEAVES = 5, /* a member that waits in the commit by which it leaves */
    STEPAF_MEMBER_LEFT = 6    /* the epoch goes on without it, since it has left by a commit */
} stepaf_member_state_t;

/** All ranks, by number of them. */
typedef struct stepaf_members {
    size_t size;    /* in: sizeof(stepaf_members_t) */
    uint32_t epoch; /* as stepaf_epoch */
    int n_in;       /* ranks that are in, those that are slow or leave among them */
    int n_slow;
    int n_lost;
    int n_out; /* those that have left among them */
    int n_asking;
    uint64_t changes; /* how often one was found to be lost, out, asking or leaving, since init */
    int n_leaving;
    int n_left;
} stepaf_members_t;

/** Function that is called when a rank has been found to be lost, out, asking or leaving. It may call any
 *  function but the collective ones and stepaf_finalize. */
typedef void (*stepaf_members_cb_t)(stepaf_context_h ctx, void *arg);

/** Fill a structure with how many ranks are members, and say of each what this rank knows of it.
 *
 *  Whether a rank is lost is known of peers within milliseconds after the end of their process while this
 *  rank waits, receives or calls stepaf_progress; of others when the bootstrap or another member says so, in
 *  a commit at the latest. Only FFN ranks are ever slow, at attention ranks that wait for their answers.
 *  @param members_p  filled; its size is set by the caller.
 *  @param states_p   NULL, or room for the states of the first @a capacity world ranks.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (members_p is NULL or its size too small, or
 *  capacity is negative). Any thread. Does not block. */
STEPAF_API stepaf_status_t stepaf_members_query(stepaf_context_h ctx, stepaf_members_t *members_p,
                                                stepaf_member_state_t *states_p, int capacity);

/** Return why a rank is lost or out, in words of this rank; "" if it is neither, NULL for an invalid argument.
 *  Valid until finalize, and until this thread's next call of this function. Never blocks. */
STEPAF_API const char *stepaf_members_reason(stepaf_context_h ctx, int world_rank);

/** Return a descriptor that can be read from when a rank has been found to be lost, out, asking or leaving, since
 *  it was last read; 8 bytes are read from it, as from an eventfd. -1 for an invalid handle, or if the system
 *  gives none.
 *
 *  Something has to find it: a progress thread, or this rank when it waits, receives or calls
 *  stepaf_progress. The context closes it when it is finalized. Does not block. */
STEPAF_API int stepaf_members_fd(stepaf_context_h ctx);

/** Have a function called when a rank has been found to be lost, out, asking or leaving: by the progress thread,
 *  or at the end of stepaf_progress, stepaf_barrier and commits of this rank. Not once this rank finalizes; a call that is
 *  running then gets STEPAF_ERR_HANDLE from the library.
 *  @param callback  NULL: none any more. It may still be running in another thread then.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE. Any thread. Does not block. */
STEPAF_API stepaf_status_t stepaf_members_set_callback(stepaf_context_h ctx,
                                                       stepaf_members_cb_t callback, void *arg);

/** Write where this rank can be called by a process that is to take a lost rank's place: for that process's
 *  setting STEPAF_JOIN, which may have the texts of several ranks, with commas between them.
 *
 *  It takes more than the text: the process has to know the job's secret (STEPAF_SECRET), without which nobody
 *  is let in.
 *  @param text_p  filled with "address:port", one for each of this host's addresses that STEPAF_NET_IF leaves,
 *                 with commas between them; unchanged on failure.
 *  @param bytes   that there is room for in @a text_p; 1024 are enough.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (text_p is NULL); STEPAF_ERR_LIMIT (it does not fit);
 *  STEPAF_ERR_STATE (the job has no secret, or its ranks cannot be called). Any thread. Does not block. */
STEPAF_API stepaf_status_t stepaf_members_address(stepaf_context_h ctx, char *text_p, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
