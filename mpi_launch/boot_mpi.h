/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap on MPI, inside libstepaf_mpi. */
#ifndef STEPAF_BOOT_MPI_H
#define STEPAF_BOOT_MPI_H

#include <pthread.h>

#include <mpi.h>

#include <stepaf/mpi.h>

enum { STEPAF_MPI_GROUPS = 3 };

/* Why members of a group meet. Each has its own tags. */
enum stepaf_mpi_meeting {
    STEPAF_MPI_BARRIER,
    STEPAF_MPI_BEFORE_COMM, /* before MPI makes the group's communicator, which has no deadline */
    STEPAF_MPI_MEETINGS
};

/* One context's membership: stepaf_boot_t's self. */
struct stepaf_mpi {
    struct stepaf_mpi *next; /* of all in this process */
    unsigned n_users;        /* the context until it is finalized, and calls of stepaf_comm */
    stepaf_context_h ctx;    /* NULL until stepaf_init has made it */
    MPI_Comm user_comm;      /* the caller's; used until it has been duplicated */
    MPI_Comm comm;           /* the duplicate, made by the first exchange; carries our traffic */
    MPI_Errhandler user_handler; /* of user_comm */
    int rank;
    int size;
    int exchange_failed; /* what is left of it may arrive any time: no other after it */
    unsigned n_barriers[STEPAF_MPI_GROUPS]; /* that all members have come to */
    int meeting_failed[STEPAF_MPI_MEETINGS][STEPAF_MPI_GROUPS];
    MPI_Comm group_comms[STEPAF_MPI_GROUPS]; /* the caller's, made by stepaf_comm */
    pthread_mutex_t group_locks[STEPAF_MPI_GROUPS];
};

/* STEPAF_OK while MPI can be called: it ends the process of who calls it after MPI_Finalize.
 * STEPAF_ERR_BOOT then, for the call or action @a what. */
stepaf_status_t stepaf_mpi_check_up(const char *what);

/* The functions of the bootstrap (see stepaf_boot_t); in exchange.c and barrier.c. */
stepaf_status_t stepaf_mpi_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                     size_t *offsets_p, int64_t timeout_us);
stepaf_status_t stepaf_mpi_barrier(void *self, stepaf_group_t group, const int *ranks, int n,
                                   int64_t timeout_us);

/* Wait until all @a n members of the group have come for the same reason. Fails as a barrier. */
stepaf_status_t stepaf_mpi_meet(struct stepaf_mpi *mpi, stepaf_group_t group,
                                enum stepaf_mpi_meeting meeting, const int *ranks, int n,
                                int64_t timeout_us);

#endif
