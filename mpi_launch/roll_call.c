/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the ranks missing from an exchange, which a collective does not report. Shortly before
 * its deadline a rank calls all others by messages on the library's communicator, and ranks that
 * wait in an exchange answer. While that communicator is only being made, the messages use the
 * caller's, with the two highest tags: there are none in a start at which all ranks arrive. */
#include "roll_call.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    TAG_CALL = 1000, /* barriers' tags are below */
    TAG_HERE,
    SIZE_MAX_CALLED = 1024, /* in a larger job each rank would send too much */
    TAG_UB_MIN = 32767,     /* the standard's minimum */
    LAST_NS = 1000000000,   /* before the deadline: a waiting rank may be off its core for long */
    SHARE = 4,              /* of a short wait: a quarter */
    LISTED = 8
};

static MPI_Comm comm_of(const struct stepaf_mpi *mpi)
{
    return mpi->comm == MPI_COMM_NULL ? mpi->user_comm : mpi->comm;
}

static int tag_of(const struct stepaf_mpi *mpi, int tag)
{
    const int *highest = NULL;
    int is_set = 0;

    if (mpi->comm != MPI_COMM_NULL)
        return tag;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &highest, &is_set);
    return (is_set && highest ? *highest : TAG_UB_MIN) - (TAG_HERE - tag);
}

/* Send a message without a body; its completion does not matter. */
static void say(const struct stepaf_mpi *mpi, int to, int tag)
{
    MPI_Request request = MPI_REQUEST_NULL;

    if (MPI_Isend(NULL, 0, MPI_BYTE, to, tag_of(mpi, tag), comm_of(mpi), &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
}

/* Return the next rank that has sent this; -1: none. */
static int next_of(const struct stepaf_mpi *mpi, int tag)
{
    MPI_Comm comm = comm_of(mpi);
    MPI_Message message;
    MPI_Status status;
    int is_there = 0;

    /* Matched, so that another thread's receive cannot take it first. */
    if (MPI_Improbe(MPI_ANY_SOURCE, tag_of(mpi, tag), comm, &is_there, &message, &status) !=
            MPI_SUCCESS ||
        !is_there)
        return -1;
    int from = status.MPI_SOURCE;
    return MPI_Mrecv(NULL, 0, MPI_BYTE, &message, &status) == MPI_SUCCESS ? from : -1;
}

struct stepaf_roll_call stepaf_roll_call_begin(const struct stepaf_mpi *mpi, int64_t deadline_ns)
{
    int64_t before_ns = (deadline_ns - stepaf_boot_now_ns()) / SHARE;
    struct stepaf_roll_call call = {.mpi = mpi};
    int from;

    call.at_ns = deadline_ns - (before_ns < LAST_NS ? before_ns : LAST_NS);
    /* Calls of an earlier, failed start on the caller's communicator do not concern this one;
     * calls for this one are answered. */
    while (mpi && mpi->comm == MPI_COMM_NULL && (from = next_of(mpi, TAG_CALL)) >= 0)
        say(mpi, from, TAG_HERE);
    return call;
}

/* Note that a rank waits, too. */
static void mark(struct stepaf_roll_call *call, int rank)
{
    if (!call->has_come && call->mpi->size <= SIZE_MAX_CALLED)
        call->has_come = calloc((size_t)call->mpi->size, 1);
    if (call->has_come)
        call->has_come[rank] = 1;
}

static void call_all(struct stepaf_roll_call *call)
{
    const struct stepaf_mpi *mpi = call->mpi;

    while (next_of(mpi, TAG_HERE) >= 0) { /* an answer to an earlier start, which has failed */
    }
    mark(call, mpi->rank);
    call->has_called = true;
    for (int rank = 0; call->has_come && rank < mpi->size; rank++)
        if (rank != mpi->rank)
            say(mpi, rank, TAG_CALL);
}

/* A rank that answers or calls has arrived. */
static void hear(struct stepaf_roll_call *call, int tag)
{
    int from;

    while ((from = next_of(call->mpi, tag)) >= 0) {
        if (tag == TAG_CALL)
            say(call->mpi, from, TAG_HERE);
        mark(call, from);
    }
}

void stepaf_roll_call_step(struct stepaf_roll_call *call, int64_t now_ns)
{
    if (!call->mpi)
        return;
    if (now_ns >= call->at_ns && !call->has_called)
        call_all(call);
    hear(call, TAG_CALL);
    if (call->has_called)
        hear(call, TAG_HERE);
}

/* Write ": no word from rank 2, 3, 7", as far as there is space. */
void stepaf_roll_call_list(const struct stepaf_roll_call *call, char *list, size_t room)
{
    size_t used = 0;
    int n = 0;

    list[0] = '\0';
    for (int rank = 0; call->has_called && call->has_come && rank < call->mpi->size && n <= LISTED;
         rank++) {
        if (call->has_come[rank])
            continue;
        const char *before = n == 0 ? ": no word from rank " : ", ";
        int more = n++ < LISTED ? snprintf(list + used, room - used, "%s%d", before, rank)
                                : snprintf(list + used, room - used, " ...");
        used += (size_t)more;
        if (used >= room)
            return;
    }
}

void stepaf_roll_call_end(struct stepaf_roll_call *call)
{
    free(call->has_come);
    call->has_come = NULL;
}
