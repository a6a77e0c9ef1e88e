/* SPDX-License-Identifier: Apache-2.0 */
/* Who has not come to an exchange: a collective does not say. When its deadline has passed, a rank calls
 * all others by messages on our communicator, and those that wait in an exchange answer. */
#include "roll_call.h"

#include <stdlib.h>
#include <time.h>

enum {
    TAG_CALL = 1000, /* barriers' tags are below */
    TAG_HERE,
    SIZE_MAX_CALLED = 1024, /* in a larger job each rank would send too much */
    FIND_NS = 200000000,    /* for answers */
    LOOK_NS = 1000000
};

/* Without a body; whether it has left nobody needs to know. */
static void say(const struct stepaf_mpi *mpi, int to, int tag)
{
    MPI_Request request = MPI_REQUEST_NULL;

    if (MPI_Isend(NULL, 0, MPI_BYTE, to, tag, mpi->comm, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
}

/* The next rank that has said this; -1: none. */
static int next_of(const struct stepaf_mpi *mpi, int tag)
{
    MPI_Status status;
    int is_there = 0;

    if (MPI_Iprobe(MPI_ANY_SOURCE, tag, mpi->comm, &is_there, &status) != MPI_SUCCESS || !is_there)
        return -1;
    int from = status.MPI_SOURCE;
    return MPI_Recv(NULL, 0, MPI_BYTE, from, tag, mpi->comm, &status) == MPI_SUCCESS ? from : -1;
}

void stepaf_mpi_answer_calls(const struct stepaf_mpi *mpi)
{
    int from;

    while (mpi->comm != MPI_COMM_NULL && (from = next_of(mpi, TAG_CALL)) >= 0)
        say(mpi, from, TAG_HERE);
}

/* Who answers now, and who calls, has come. Return how many more that makes. */
static int mark(const struct stepaf_mpi *mpi, int tag, unsigned char *has_come)
{
    int from, n = 0;

    while ((from = next_of(mpi, tag)) >= 0) {
        if (tag == TAG_CALL)
            say(mpi, from, TAG_HERE);
        n += !has_come[from];
        has_come[from] = 1;
    }
    return n;
}

int stepaf_mpi_find_missing(const struct stepaf_mpi *mpi)
{
    unsigned char *has_come;
    int left = mpi->size - 1, missing = 0;

    if (mpi->comm == MPI_COMM_NULL || mpi->size > SIZE_MAX_CALLED ||
        !(has_come = calloc((size_t)mpi->size, 1)))
        return -1;
    has_come[mpi->rank] = 1;
    for (int rank = 0; rank < mpi->size; rank++)
        if (rank != mpi->rank)
            say(mpi, rank, TAG_CALL);
    int64_t end_ns = stepaf_boot_now_ns() + FIND_NS;
    while (left > 0 && stepaf_boot_now_ns() < end_ns) {
        left -= mark(mpi, TAG_HERE, has_come) + mark(mpi, TAG_CALL, has_come);
        nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
    }
    while (missing < mpi->size && has_come[missing])
        missing++;
    free(has_come);
    return missing < mpi->size ? missing : -1;
}
