/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstraps: how ranks find each other and exchange addresses. libstepaf_mpi provides a bootstrap
 * over MPI, libstepaf_pmix one over PMIx. The library itself provides one for processes on one
 * machine that are forked or started one by one (STEPAF_LOCAL_SIZE), and one over TCP
 * (STEPAF_MEET). A caller can provide another, for example over a key-value store. */
#ifndef STEPAF_BOOT_H
#define STEPAF_BOOT_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A bootstrap. The library calls its functions only within stepaf_init, stepaf_commit,
 *  stepaf_barrier, stepaf_map_check and stepaf_finalize, from the calling thread. All are
 *  collective, except lost. Each must return within about @a timeout_us. @a self is passed to each
 *  unchanged. The structure never changes. */
typedef struct stepaf_boot {
    const char *name; /* such as "mpi"; for messages */
    void *self;
    int rank; /* of this process in the world, 0 .. size-1 */
    int size;
    int app_number; /* MPMD application number; -1 if the launcher has none */

    /** Gather @a bytes bytes from every rank. On success, *all_p is one block that holds the
     *  contributions in rank order; the caller frees it with free(). offsets_p[0..size] (an array
     *  of size+1 that the caller owns) holds the start of each; offsets_p[size] is the total.
     *  Outputs are unchanged on failure. */
    stepaf_status_t (*allgather)(void *self, const void *data, size_t bytes, void **all_p,
                                 size_t *offsets_p, int64_t timeout_us);

    /** Wait until all of the @a n world ranks in @a ranks (ascending, this rank among them) have
     *  called this function. @a group is the group of the context that they form. */
    stepaf_status_t (*barrier)(void *self, stepaf_group_t group, const int *ranks, int n,
                               int64_t timeout_us);

    /** Free the bootstrap's resources. NULL if there are none. Must not block on lost peers. */
    void (*close)(void *self);

    /** Report ranks that have ended, as announced by the launcher since the last call: write up to
     *  @a capacity world ranks to @a ranks_p, each once, and return their number. NULL if the
     *  launcher announces none. Not collective: called about every millisecond by any thread, one
     *  at a time, also while another function of this bootstrap runs. Must not wait. */
    int (*lost)(void *self, int *ranks_p, int capacity);
} stepaf_boot_t;

/** Set the text that stepaf_last_error returns for a failure of a bootstrap function.
 *  @param status  the status that the function is about to return; not STEPAF_OK.
 *  @param text    one sentence; copied.
 *  @return @a status.
 *
 *  Any thread. Does not block. Cannot fail. */
STEPAF_API stepaf_status_t stepaf_boot_set_error(stepaf_status_t status, const char *text);

/** Make progress while a bootstrap function waits. Call this function from that function's wait
 *  loop, in the same thread.
 *
 *  In a barrier without a progress thread, operations make progress and the batch callback is
 *  called here. A bootstrap that never calls this function works, but its ranks serve no peers
 *  while they wait in it. Outside a bootstrap function that the library has called, this function
 *  does nothing and returns INT64_MAX.
 *  @return microseconds after which to call again (0: immediately; INT64_MAX: not at all); or -1:
 *  return as at the deadline, because another thread finalizes the context, the members continue a
 *  commit without the bootstrap, or the program interrupts the call (stepaf_set_interrupt).
 *
 *  Any thread. Never blocks, except in the batch callback. */
STEPAF_API int64_t stepaf_boot_advance(void);

/** Open the bootstrap of this library that the environment selects: the one over TCP (STEPAF_MEET,
 *  torchrun's variables) or the one for a single machine (STEPAF_LOCAL_SIZE).
 *
 *  For programs that have several contexts, one after the other, or that exchange data of their
 *  own. stepaf_init(NULL, ...) opens the same bootstrap for one context. Ranks meet in their first
 *  exchange, within STEPAF_INIT_TIMEOUT_US.
 *  @param boot_p  for stepaf_init. Unless a context closes the bootstrap, the caller does, with its
 *                 close. The caller may call its other functions while no context that uses it is
 *                 in a call. Unchanged on failure.
 *  @return STEPAF_OK; STEPAF_ERR_INVALID (@a boot_p is NULL); STEPAF_ERR_SETTING (the settings do
 *  not give this process a rank in a job); STEPAF_ERR_BOOT (the environment selects no such
 *  bootstrap, or the system provides no file descriptor); STEPAF_ERR_NO_MEMORY.
 *
 *  Any thread. Does not block. */
STEPAF_API stepaf_status_t stepaf_boot_open(stepaf_boot_t *boot_p);

/** The bootstrap of processes that one program forks on one machine, without a launcher. */
typedef struct stepaf_boot_local stepaf_boot_local_t;

/** Create a local bootstrap for @a size processes; call before fork().
 *  @param size     1 .. 1024
 *  @param local_p  shared by all children, each of which calls stepaf_boot_local_attach; every
 *                  process ends it with stepaf_boot_local_destroy.
 *  @return STEPAF_OK; STEPAF_ERR_INVALID; STEPAF_ERR_NO_MEMORY.
 *
 *  Any thread. Does not block. */
STEPAF_API stepaf_status_t stepaf_boot_local_create(int size, stepaf_boot_local_t **local_p);

/** Become rank @a rank of @a local, and fill *boot_p for stepaf_init.
 *  @param app_number  MPMD application number to report; -1 for none.
 *  @param boot_p      for stepaf_init; its close ends it.
 *  @return STEPAF_OK; STEPAF_ERR_INVALID (rank out of range).
 *
 *  Does not block. */
STEPAF_API stepaf_status_t stepaf_boot_local_attach(stepaf_boot_local_t *local, int rank,
                                                    int app_number, stepaf_boot_t *boot_p);

/** Unmap @a local in this process; other processes keep theirs. Does not block. */
STEPAF_API void stepaf_boot_local_destroy(stepaf_boot_local_t *local);

#ifdef __cplusplus
}
#endif
#endif
