/* SPDX-License-Identifier: Apache-2.0 */
/* Members: which ranks are in the epoch, and which are slow, lost or out. Slow and lost are this
 * rank's own observations. Out is decided by a commit (stepaf_commit_with), and is the same on all
 * ranks. */
#ifndef STEPAF_MEMBERS_H
#define STEPAF_MEMBERS_H

#include <stdint.h>

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** State of a rank, as far as this rank knows. */
typedef enum stepaf_member_state {
    STEPAF_MEMBER_IN = 0,     /* a member of the epoch */
    STEPAF_MEMBER_SLOW = 1,   /* a member; has owed this rank an answer for over STEPAF_SLOW_US */
    STEPAF_MEMBER_LOST = 2,   /* a member that has ended or cannot be reached */
    STEPAF_MEMBER_OUT = 3,    /* excluded by a commit after it was lost */
    STEPAF_MEMBER_ASKS = 4,   /* lost or out, and a process asks to replace it */
    STEPAF_MEMBER_LEAVES = 5, /* a member that waits in the commit by which it leaves */
    STEPAF_MEMBER_LEFT = 6    /* has left by a commit */
} stepaf_member_state_t;

/** Number of ranks in each state. */
typedef struct stepaf_members {
    size_t size;    /* in: sizeof(stepaf_members_t) */
    uint32_t epoch; /* as stepaf_epoch */
    int n_in;       /* members that are not lost, including slow and leaving ones */
    int n_slow;
    int n_lost;
    int n_out; /* including those that have left */
    int n_asking;
    uint64_t changes; /* changes to lost, out, asking or leaving that were detected since init */
    int n_leaving;
    int n_left;
} stepaf_members_t;

/** Callback for detected changes: a rank is lost, out, asking or leaving. The callback may call any
 *  function except collective functions and stepaf_finalize: a commit and stepaf_finalize then do
 *  nothing, with STEPAF_ERR_STATE. */
typedef void (*stepaf_members_cb_t)(stepaf_context_h ctx, void *arg);

/** Report the number of ranks in each state and, optionally, each rank's state.
 *
 *  While this rank waits, receives or calls stepaf_progress, the loss of a peer is detected within
 *  milliseconds of the end of its process. The loss of another rank is detected when the bootstrap
 *  or a member reports it, in a commit at the latest. Only FFN ranks are ever slow, as seen by
 *  attention ranks that wait for their answers.
 *  @param members_p  filled; the caller sets its size field.
 *  @param states_p   NULL, or space for the states of the first @a capacity world ranks.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (@a members_p is NULL, or its size is
 *  too small, or @a capacity is negative).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_members_query(stepaf_context_h ctx, stepaf_members_t *members_p,
                                                stepaf_member_state_t *states_p, int capacity);

/** Return the reason why a rank is lost or out, as text; "" if the rank is neither, NULL for an
 *  invalid argument.
 *
 *  Valid until finalize, and until this thread's next call of this function.
 *
 *  Does not block. */
STEPAF_API const char *stepaf_members_reason(stepaf_context_h ctx, int world_rank);

/** Return a file descriptor that becomes readable when a rank is detected to be lost, out, asking
 *  or leaving; -1 for an invalid handle, or if the system provides no file descriptor.
 *
 *  A read of 8 bytes, as from an eventfd, resets it. Changes are detected by a progress thread, or
 *  while this rank waits, receives or calls stepaf_progress. The context owns the file descriptor,
 *  and closes it in finalize.
 *
 *  Does not block. */
STEPAF_API int stepaf_members_fd(stepaf_context_h ctx);

/** Set the callback for ranks that are detected to be lost, out, asking or leaving.
 *
 *  The callback is called by the progress thread, or at the end of stepaf_progress, stepaf_barrier
 *  and commits of this rank. It is not called once this rank finalizes; one that is running then
 *  gets STEPAF_ERR_HANDLE from the library.
 *  @param callback  NULL removes the callback, which may then still be running in another thread.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE.
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_members_set_callback(stepaf_context_h ctx,
                                                       stepaf_members_cb_t callback, void *arg);

/** Return the addresses at which a replacement process can contact this rank, as a value for the
 *  process's setting STEPAF_JOIN. The values of several ranks can be joined with commas.
 *
 *  The process also requires the job's secret (STEPAF_SECRET); without the secret, it is not
 *  admitted.
 *  @param text_p  filled with a comma-separated list of "address:port", one for each of this host's
 *                 addresses that STEPAF_NET_IF permits; unchanged on failure.
 *  @param bytes   size of @a text_p; 1024 are enough.
 *  @return STEPAF_OK; STEPAF_ERR_HANDLE; STEPAF_ERR_INVALID (@a text_p is NULL); STEPAF_ERR_LIMIT
 *  (the list does not fit); STEPAF_ERR_STATE (the job has no secret, or its ranks cannot be
 *  contacted).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_members_address(stepaf_context_h ctx, char *text_p, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
