/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap: how ranks find each other and exchange addresses, once. libstepaf_mpi supplies
 * one on MPI, libstepaf_pmix one on PMIx; the library itself supplies a local one for processes
 * forked on one machine, or started there one by one (STEPAF_LOCAL_SIZE); a caller with a key-value
 * store of its own can supply another. */
#ifndef STEPAF_BOOT_H
#define STEPAF_BOOT_H

#include <stepaf/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A bootstrap. The library calls it only from within stepaf_init, stepaf_commit,
 *  stepaf_barrier, stepaf_map_check and stepaf_finalize, from the calling thread, and all functions
 *  are collective, except for lost. Every one must return within about @a timeout_us. @a self is
 *  passed back unchanged. */
typedef struct stepaf_boot {
    const char *name; /* "mpi", "pmix", "local": for tables and messages */
    void *self;
    int rank; /* of this process in the world, 0 .. size-1 */
    int size;
    int app_number; /* MPMD application number, or -1 where the launcher tells none */

    /** Gather every rank's @a bytes bytes. On success *all_p is one block, freed by the caller
     *  with free(), that holds the contributions in rank order, and offsets_p[0..size] (an array
     *  of size+1 that the caller owns) says where each starts; offsets_p[size] is the total.
     *  Failure leaves the outputs as they were. */
    stepaf_status_t (*allgather)(void *self, const void *data, size_t bytes, void **all_p,
                                 size_t *offsets_p, int64_t timeout_us);

    /** Wait until all of the @a n world ranks in @a ranks (ascending, this one among them) have
     *  called this. @a group tells apart the three groups of a context. */
    stepaf_status_t (*barrier)(void *self, stepaf_group_t group, const int *ranks, int n,
                               int64_t timeout_us);

    /** Give back what the bootstrap holds. NULL if there is nothing. Must not block on peers
     *  that are lost. */
    void (*close)(void *self);

    /** Say which ranks the launcher has newly reported to be gone: up to @a capacity world ranks
     *  into @a ranks_p, each once; return their number. NULL if the launcher never says. Not
     *  collective: called about every millisecond by any thread, one at a time, also while another
     *  function of this bootstrap runs. No waiting, system call or allocation. */
    int (*lost)(void *self, int *ranks_p, int capacity);
} stepaf_boot_t;

/** For bootstraps: say why a function of theirs is about to fail, so that stepaf_last_error can.
 *  @param status  what the function is going to return; not STEPAF_OK.
 *  @param text    one sentence; copied.
 *  @return @a status. Any thread, never blocks, cannot fail. */
STEPAF_API stepaf_status_t stepaf_boot_set_error(stepaf_status_t status, const char *text);

/** The bootstrap of processes that one program forks on one machine; needs no launcher. */
typedef struct stepaf_boot_local stepaf_boot_local_t;

/** Make a local bootstrap for @a size processes; call before fork().
 *  @param size     1 .. 1024
 *  @param local_p  shared by all children; each calls stepaf_boot_local_attach.
 *  @return STEPAF_OK; STEPAF_ERR_INVALID; STEPAF_ERR_NO_MEMORY. Any thread. Does not block. */
STEPAF_API stepaf_status_t stepaf_boot_local_create(int size, stepaf_boot_local_t **local_p);

/** Become rank @a rank of @a local and fill *boot_p for stepaf_init.
 *  @param app_number  what to report as the MPMD application number; -1 for none.
 *  @return STEPAF_OK; STEPAF_ERR_INVALID (rank out of range). Does not block. */
STEPAF_API stepaf_status_t stepaf_boot_local_attach(stepaf_boot_local_t *local, int rank,
                                                    int app_number, stepaf_boot_t *boot_p);

/** Unmap @a local in this process. The others' mappings are their own. Does not block. */
STEPAF_API void stepaf_boot_local_destroy(stepaf_boot_local_t *local);

#ifdef __cplusplus
}
#endif
#endif
