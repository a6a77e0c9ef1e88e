/* SPDX-License-Identifier: Apache-2.0 */
/* The start on MPI, and communicators for the caller. */
#include "boot_mpi.h"

#include <stdlib.h>

#include "wait.h"

/* All contexts made here, so that stepaf_comm finds the one that a handle means without the core
 * having to know MPI. */
static struct stepaf_mpi *members;
static pthread_mutex_t members_lock = PTHREAD_MUTEX_INITIALIZER;

static void enter(struct stepaf_mpi *mpi)
{
    pthread_mutex_lock(&members_lock);
    mpi->next = members;
    members = mpi;
    pthread_mutex_unlock(&members_lock);
}

static void leave(struct stepaf_mpi *mpi)
{
    pthread_mutex_lock(&members_lock);
    for (struct stepaf_mpi **link = &members; *link; link = &(*link)->next) {
        if (*link == mpi) {
            *link = mpi->next;
            break;
        }
    }
    pthread_mutex_unlock(&members_lock);
}

/* Return what belongs to a context, for use until let_go(); NULL: nothing does. */
static struct stepaf_mpi *find(stepaf_context_h ctx)
{
    pthread_mutex_lock(&members_lock);
    struct stepaf_mpi *mpi = members;
    while (mpi && mpi->ctx != ctx)
        mpi = mpi->next;
    if (mpi)
        mpi->n_users++;
    pthread_mutex_unlock(&members_lock);
    return mpi;
}

static int mpi_is_up(void)
{
    int initialized = 0;
    int finalized = 0;
    MPI_Initialized(&initialized);
    if (initialized)
        MPI_Finalized(&finalized);
    return initialized && !finalized;
}

stepaf_status_t stepaf_mpi_check_up(const char *what)
{
    return mpi_is_up()
               ? STEPAF_OK
               : stepaf_boot_fail(STEPAF_ERR_BOOT,
                                  "MPI bootstrap: %s: MPI_Finalize has already been called", what);
}

static int has_failed(const struct stepaf_mpi *mpi)
{
    int failed = mpi->exchange_failed;
    for (int meeting = 0; meeting < STEPAF_MPI_MEETINGS; meeting++)
        for (int group = 0; group < STEPAF_MPI_GROUPS; group++)
            failed |= mpi->meeting_failed[meeting][group];
    return failed;
}

/* Freeing a communicator is collective by name and local in practice, but only while nothing is
 * under way on it: after a failure it is left to MPI. */
static void free_comms(struct stepaf_mpi *mpi)
{
    for (int group = 0; group < STEPAF_MPI_GROUPS; group++)
        if (mpi->group_comms[group] != MPI_COMM_NULL)
            MPI_Comm_free(&mpi->group_comms[group]);
    if (mpi->comm != MPI_COMM_NULL)
        MPI_Comm_free(&mpi->comm);
    if (mpi->user_handler != MPI_ERRHANDLER_NULL)
        MPI_Errhandler_free(&mpi->user_handler);
}

/* The last user frees it: another thread may finalize the context while one is in stepaf_comm. */
static void let_go(struct stepaf_mpi *mpi)
{
    pthread_mutex_lock(&members_lock);
    unsigned n_left = --mpi->n_users;
    pthread_mutex_unlock(&members_lock);
    if (n_left)
        return;
    if (!has_failed(mpi) && mpi_is_up())
        free_comms(mpi);
    for (int group = 0; group < STEPAF_MPI_GROUPS; group++)
        pthread_mutex_destroy(&mpi->group_locks[group]);
    free(mpi);
}

static void close_mpi(void *self)
{
    leave(self);
    let_go(self);
}

static int app_number(void)
{
    int *number = NULL;
    int is_set = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &is_set);
    return is_set && number && *number >= 0 ? *number : -1;
}

static stepaf_status_t check_comm(MPI_Comm comm)
{
    int is_inter = 0;
    if (!mpi_is_up())
        return stepaf_boot_fail(STEPAF_ERR_INVALID, "MPI is not initialized, or is finalized");
    if (comm == MPI_COMM_NULL)
        return stepaf_boot_fail(STEPAF_ERR_INVALID, "the communicator is MPI_COMM_NULL");
    MPI_Comm_test_inter(comm, &is_inter);
    if (is_inter)
        return stepaf_boot_fail(STEPAF_ERR_INVALID, "the communicator is an intercommunicator");
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size == 1 ? stepaf_boot_check_alone("MPI") : STEPAF_OK;
}

static struct stepaf_mpi *open_mpi(MPI_Comm comm)
{
    struct stepaf_mpi *mpi = calloc(1, sizeof *mpi);
    if (!mpi)
        return NULL;
    mpi->n_users = 1;
    mpi->user_comm = comm;
    mpi->comm = MPI_COMM_NULL;
    mpi->user_handler = MPI_ERRHANDLER_NULL;
    for (int group = 0; group < STEPAF_MPI_GROUPS; group++) {
        mpi->group_comms[group] = MPI_COMM_NULL;
        pthread_mutex_init(&mpi->group_locks[group], NULL);
    }
    MPI_Comm_rank(comm, &mpi->rank);
    MPI_Comm_size(comm, &mpi->size);
    return mpi;
}

stepaf_status_t stepaf_init_mpi(MPI_Comm comm, const stepaf_params_t *params,
                                stepaf_context_h *ctx_p)
{
    stepaf_status_t status = check_comm(comm);
    if (status != STEPAF_OK)
        return status;
    struct stepaf_mpi *mpi = open_mpi(comm);
    if (!mpi)
        return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "no memory for the MPI bootstrap");

    stepaf_boot_t boot = {
        .name = "mpi",
        .self = mpi,
        .rank = mpi->rank,
        .size = mpi->size,
        .app_number = app_number(),
        .allgather = stepaf_mpi_allgather,
        .barrier = stepaf_mpi_barrier,
        .close = close_mpi,
    };
    status = stepaf_init(&boot, params, ctx_p);
    if (status != STEPAF_OK) {
        close_mpi(mpi);
        return status;
    }
    mpi->ctx = *ctx_p;
    enter(mpi);
    return STEPAF_OK;
}

stepaf_status_t stepaf_init_mpi_world(const stepaf_params_t *params, stepaf_context_h *ctx_p)
{
    return stepaf_init_mpi(MPI_COMM_WORLD, params, ctx_p);
}

/* Make the communicator of @a group, whose members have all come. They are its caller's: errors on
 * it are handled as on the communicator that the job began with. */
static stepaf_status_t make_group_comm(struct stepaf_mpi *mpi, stepaf_group_t group,
                                       const int *ranks, int n)
{
    stepaf_status_t status = STEPAF_OK;
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group members_group = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;

    int code = MPI_Comm_group(mpi->comm, &world);
    if (code == MPI_SUCCESS)
        code = MPI_Group_incl(world, n, ranks, &members_group);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_create_group(mpi->comm, members_group, (int)group, &comm);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(comm, mpi->user_handler);
    if (code != MPI_SUCCESS)
        status = stepaf_mpi_error(code, "creating a group's communicator");
    else
        mpi->group_comms[group] = comm;
    if (members_group != MPI_GROUP_NULL)
        MPI_Group_free(&members_group);
    if (world != MPI_GROUP_NULL)
        MPI_Group_free(&world);
    return status;
}

/* MPI waits for ever for a member that does not come: all meet before, for this alone, so that no
 * member is in a barrier of its caller's instead. */
static stepaf_status_t meet_for_comm(struct stepaf_mpi *mpi, stepaf_group_t group)
{
    int n = stepaf_size(mpi->ctx, group);
    if (n <= 0)
        return stepaf_boot_fail(STEPAF_ERR_HANDLE, "the context has been finalized");
    int *ranks = malloc((size_t)n * sizeof *ranks);
    if (!ranks)
        return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "no memory for a group of %d ranks", n);
    for (int i = 0; i < n; i++)
        ranks[i] = stepaf_world_rank(mpi->ctx, group, i);

    /* It knows of lost members, and sends what has been posted. */
    stepaf_status_t status = stepaf_barrier(mpi->ctx, group, STEPAF_TIMEOUT_DEFAULT);
    if (status == STEPAF_OK)
        status = stepaf_mpi_meet(mpi, group, STEPAF_MPI_BEFORE_COMM, ranks, n,
                                 stepaf_default_timeout_us(mpi->ctx));
    if (status == STEPAF_OK)
        status = make_group_comm(mpi, group, ranks, n);
    free(ranks);
    return status;
}

stepaf_status_t stepaf_comm(stepaf_context_h ctx, stepaf_group_t group, MPI_Comm *comm_p)
{
    if ((unsigned)group >= STEPAF_MPI_GROUPS || !comm_p)
        return stepaf_boot_fail(STEPAF_ERR_INVALID, "no group %d, or comm_p is NULL", (int)group);
    struct stepaf_mpi *mpi = ctx ? find(ctx) : NULL;
    if (!mpi)
        return stepaf_boot_fail(STEPAF_ERR_HANDLE, "no context of stepaf_init_mpi");
    if (stepaf_rank(ctx, group) < 0) {
        int is_over = stepaf_size(ctx, STEPAF_GROUP_WORLD) <= 0;
        *comm_p = MPI_COMM_NULL;
        let_go(mpi);
        return is_over ? stepaf_boot_fail(STEPAF_ERR_HANDLE, "the context has been finalized")
                       : STEPAF_OK;
    }
    /* A lock for each group: with one for all, threads that ask for groups in another order than
     * a peer's would wait for each other. */
    stepaf_status_t status = STEPAF_OK;
    pthread_mutex_lock(&mpi->group_locks[group]);
    if (mpi->group_comms[group] == MPI_COMM_NULL)
        status = meet_for_comm(mpi, group);
    if (status == STEPAF_OK)
        *comm_p = mpi->group_comms[group];
    pthread_mutex_unlock(&mpi->group_locks[group]);
    let_go(mpi);
    return status;
}
