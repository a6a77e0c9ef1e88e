/* SPDX-License-Identifier: Apache-2.0 */
/* The barrier of any group, built from point-to-point messages on the world's communicator. Thus
 * no group communicator is needed, which MPI cannot make without blocking, and a late message
 * can be abandoned, unlike a collective's request. */
#include "boot_mpi.h"
#include "wait.h"

enum {
    ROUND_TAGS = 32, /* at most 32 rounds: the distance doubles in each */
    COMM_TAG = 2048, /* the first of those before a communicator, beyond the roll call's */
    COMM_TAGS = 256  /* sets of these tags, one for each earlier barrier */
};

/* Send to one rank, wait for another. Messages of repeated barriers have the same tag; MPI keeps
 * them in order. */
static stepaf_status_t exchange_token(struct stepaf_mpi *mpi, int to, int from, int tag,
                                      int64_t deadline_ns)
{
    int round = tag % ROUND_TAGS;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    int code = MPI_Irecv(NULL, 0, MPI_BYTE, from, tag, mpi->comm, &requests[0]);
    if (code == MPI_SUCCESS)
        code = MPI_Isend(NULL, 0, MPI_BYTE, to, tag, mpi->comm, &requests[1]);

    stepaf_status_t status = code == MPI_SUCCESS
                                 ? stepaf_mpi_wait(NULL, requests, 2, deadline_ns, "barrier")
                                 : stepaf_mpi_error(code, "barrier");
    if (status == STEPAF_ERR_TIMEOUT && requests[0] != MPI_REQUEST_NULL)
        stepaf_boot_fail(status, "MPI bootstrap: barrier: rank %d%s did not arrive in time", from,
                         round ? ", or one that it waits for," : "");
    if (requests[0] != MPI_REQUEST_NULL) {
        MPI_Cancel(&requests[0]);
        MPI_Request_free(&requests[0]);
    }
    if (requests[1] != MPI_REQUEST_NULL)
        MPI_Request_free(&requests[1]);
    return status;
}

/* Dissemination: in round r every rank notifies the rank 2^r places on; after the last round
 * every rank has, indirectly, been notified by all others. */
static stepaf_status_t meet(struct stepaf_mpi *mpi, const int *ranks, int n, int place,
                            int first_tag, int64_t deadline_ns)
{
    for (int round = 0, distance = 1; distance < n; round++, distance *= 2) {
        int to = ranks[(place + distance) % n];
        int from = ranks[(place - distance + n) % n];
        stepaf_status_t status = exchange_token(mpi, to, from, first_tag + round, deadline_ns);
        if (status != STEPAF_OK)
            return status;
    }
    return STEPAF_OK;
}

/* Distinguish the ranks that arrive to make a communicator from those that arrived for the same
 * after an earlier barrier, gave up, and left their messages. */
static int first_tag(const struct stepaf_mpi *mpi, stepaf_group_t group,
                     enum stepaf_mpi_meeting meeting)
{
    unsigned set = (unsigned)group;

    if (meeting == STEPAF_MPI_BARRIER)
        return (int)set * ROUND_TAGS;
    set += mpi->n_barriers[group] % COMM_TAGS * STEPAF_MPI_GROUPS;
    return COMM_TAG + (int)set * ROUND_TAGS;
}

stepaf_status_t stepaf_mpi_barrier(void *self, stepaf_group_t group, const int *ranks, int n,
                                   int64_t timeout_us)
{
    struct stepaf_mpi *mpi = self;
    stepaf_status_t status = stepaf_mpi_meet(mpi, group, STEPAF_MPI_BARRIER, ranks, n, timeout_us);

    if (status == STEPAF_OK)
        mpi->n_barriers[group]++;
    return status;
}

stepaf_status_t stepaf_mpi_meet(struct stepaf_mpi *mpi, stepaf_group_t group,
                                enum stepaf_mpi_meeting meeting, const int *ranks, int n,
                                int64_t timeout_us)
{
    int64_t deadline_ns = stepaf_boot_deadline(timeout_us);
    int place = 0;

    if ((unsigned)group >= STEPAF_MPI_GROUPS || n < 1 || n > mpi->size)
        return stepaf_boot_fail(STEPAF_ERR_INVALID, "MPI bootstrap: no group %d of %d ranks",
                                (int)group, n);
    while (place < n && ranks[place] != mpi->rank)
        place++;
    if (place == n)
        return stepaf_boot_fail(STEPAF_ERR_INVALID, "MPI bootstrap: rank %d is not in group %d",
                                mpi->rank, (int)group);
    stepaf_status_t status = stepaf_mpi_check_up("barrier");
    if (status != STEPAF_OK)
        return status;
    if (mpi->comm == MPI_COMM_NULL || mpi->meeting_failed[STEPAF_MPI_BARRIER][group])
        return stepaf_boot_fail(
            STEPAF_ERR_BOOT,
            "MPI bootstrap: no barrier is possible before an exchange, or after one has failed");

    status = meet(mpi, ranks, n, place, first_tag(mpi, group, meeting), deadline_ns);
    if (status != STEPAF_OK)
        mpi->meeting_failed[meeting][group] = 1;
    return status;
}
