/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange: one collective with a small block from each rank, and a second one only if some
 * rank's data does not fit in the block. */
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "boot_mpi.h"
#include "wait.h"

/* Bytes in the first collective. With 32 ranks on two cores blocks of 64 B to 1 KiB cost the
 * same within the noise, blocks of 4 KiB twice as much, and a second collective more than
 * either; init's data is a few hundred bytes. */
enum { INLINE_MAX = 1024 };

struct block {
    uint64_t bytes;
    char data[INLINE_MAX];
};

/* Memory of the collective in flight. */
struct exchange {
    struct exchange *next; /* once abandoned */
    int under_way;         /* MPI may use it at any time */
    struct block *mine;
    struct block *blocks;
    int *counts;
    int *offsets;
    char *all;
    MPI_Comm copy;
};

/* A collective cannot be canceled: after a timeout its memory is never freed, since MPI may
 * still write to it. */
static _Atomic(struct exchange *) abandoned;

static void free_exchange(struct exchange *exchange)
{
    if (exchange->under_way) {
        exchange->next = atomic_exchange(&abandoned, exchange);
        return;
    }
    free(exchange->all);
    free(exchange->offsets);
    free(exchange->counts);
    free(exchange->blocks);
    free(exchange->mine);
    free(exchange);
}

static struct exchange *new_exchange(int size)
{
    struct exchange *exchange = calloc(1, sizeof *exchange);
    if (!exchange)
        return NULL;
    exchange->mine = calloc(1, sizeof *exchange->mine);
    exchange->blocks = malloc((size_t)size * sizeof *exchange->blocks);
    exchange->counts = calloc((size_t)size, sizeof *exchange->counts);
    exchange->offsets = calloc((size_t)size, sizeof *exchange->offsets);
    if (exchange->mine && exchange->blocks && exchange->counts && exchange->offsets)
        return exchange;
    free_exchange(exchange);
    return NULL;
}

/* Wait for the collective that was begun with the result @a code. */
static stepaf_status_t finish(const struct stepaf_mpi *mpi, struct exchange *exchange, int code,
                              MPI_Request *request, int64_t deadline_ns, const char *what)
{
    if (code != MPI_SUCCESS)
        return stepaf_mpi_error(code, what);
    exchange->under_way = 1;
    stepaf_status_t status = stepaf_mpi_wait(mpi, request, 1, deadline_ns, what);
    exchange->under_way = status != STEPAF_OK;
    return status;
}

/* Duplicate the caller's communicator, so that the library's messages never match the caller's.
 * The caller's error handler might end the process: it is disabled meanwhile. */
static stepaf_status_t duplicate(struct stepaf_mpi *mpi, struct exchange *exchange,
                                 int64_t deadline_ns)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm_get_errhandler(mpi->user_comm, &mpi->user_handler);
    MPI_Comm_set_errhandler(mpi->user_comm, MPI_ERRORS_RETURN);
    int code = MPI_Comm_idup(mpi->user_comm, &exchange->copy, &request);
    stepaf_status_t status =
        finish(mpi, exchange, code, &request, deadline_ns, "duplicating the communicator");
    MPI_Comm_set_errhandler(mpi->user_comm, mpi->user_handler);
    if (status != STEPAF_OK)
        return status;
    mpi->comm = exchange->copy;
    MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    return STEPAF_OK;
}

/* First collective: sizes, and the data that fits. */
static stepaf_status_t gather_blocks(struct stepaf_mpi *mpi, struct exchange *exchange,
                                     const void *data, size_t bytes, int64_t deadline_ns)
{
    MPI_Request request = MPI_REQUEST_NULL;
    exchange->mine->bytes = bytes;
    if (bytes > 0 && bytes <= INLINE_MAX)
        memcpy(exchange->mine->data, data, bytes);

    int code = MPI_Iallgather(exchange->mine, sizeof *exchange->mine, MPI_BYTE, exchange->blocks,
                              sizeof *exchange->blocks, MPI_BYTE, mpi->comm, &request);
    return finish(mpi, exchange, code, &request, deadline_ns, "exchange of sizes");
}

/* Every rank sees the same sizes, so that all reach the same verdict. Return the total, or -1 if
 * MPI's counts are too small for it. */
static int64_t lay_out(const struct stepaf_mpi *mpi, struct exchange *exchange, int *all_fit_p)
{
    uint64_t total = 0;
    *all_fit_p = 1;
    for (int rank = 0; rank < mpi->size; rank++) {
        uint64_t bytes = exchange->blocks[rank].bytes;
        if (bytes > INT_MAX || total + bytes > INT_MAX)
            return -1;
        exchange->counts[rank] = (int)bytes;
        exchange->offsets[rank] = (int)total;
        total += bytes;
        *all_fit_p &= bytes <= INLINE_MAX;
    }
    return (int64_t)total;
}

/* Second collective: the data of all ranks. It is sent from a copy, because the caller's memory
 * is only valid during the call, while an abandoned collective lasts longer. */
static stepaf_status_t gather_data(struct stepaf_mpi *mpi, struct exchange *exchange,
                                   const void *data, size_t bytes, int64_t deadline_ns)
{
    MPI_Request request = MPI_REQUEST_NULL;
    if (bytes > sizeof exchange->mine->data) {
        struct block *larger = realloc(exchange->mine, offsetof(struct block, data) + bytes);
        if (!larger)
            return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "MPI bootstrap: no memory for %zu bytes",
                                    bytes);
        exchange->mine = larger;
    }
    char *copy = (char *)exchange->mine + offsetof(struct block, data);
    if (bytes > 0)
        memcpy(copy, data, bytes);
    int code = MPI_Iallgatherv(copy, (int)bytes, MPI_BYTE, exchange->all, exchange->counts,
                               exchange->offsets, MPI_BYTE, mpi->comm, &request);
    return finish(mpi, exchange, code, &request, deadline_ns, "exchange of data");
}

static void unpack_blocks(const struct stepaf_mpi *mpi, struct exchange *exchange)
{
    for (int rank = 0; rank < mpi->size; rank++)
        memcpy(exchange->all + exchange->offsets[rank], exchange->blocks[rank].data,
               (size_t)exchange->counts[rank]);
}

/* Run the whole exchange, until the data of all ranks is in exchange->all. */
static stepaf_status_t gather(struct stepaf_mpi *mpi, struct exchange *exchange, const void *data,
                              size_t bytes, int64_t deadline_ns)
{
    stepaf_status_t status = STEPAF_OK;
    int all_fit;

    if (mpi->comm == MPI_COMM_NULL)
        status = duplicate(mpi, exchange, deadline_ns);
    if (status == STEPAF_OK)
        status = gather_blocks(mpi, exchange, data, bytes, deadline_ns);
    if (status != STEPAF_OK)
        return status;

    int64_t total = lay_out(mpi, exchange, &all_fit);
    if (total < 0)
        return stepaf_boot_fail(STEPAF_ERR_LIMIT,
                                "MPI bootstrap: the exchange has more than %d bytes", INT_MAX);
    exchange->all = malloc(total ? (size_t)total : 1);
    if (!exchange->all)
        return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "MPI bootstrap: no memory for %lld bytes",
                                (long long)total);
    if (!all_fit)
        return gather_data(mpi, exchange, data, bytes, deadline_ns);
    unpack_blocks(mpi, exchange);
    return STEPAF_OK;
}

/* Move the results to the caller. */
static void hand_over(const struct stepaf_mpi *mpi, struct exchange *exchange, void **all_p,
                      size_t *offsets_p)
{
    size_t end = 0;
    for (int rank = 0; rank < mpi->size; rank++) {
        offsets_p[rank] = end;
        end += (size_t)exchange->counts[rank];
    }
    offsets_p[mpi->size] = end;
    *all_p = exchange->all;
    exchange->all = NULL;
}

stepaf_status_t stepaf_mpi_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                     size_t *offsets_p, int64_t timeout_us)
{
    struct stepaf_mpi *mpi = self;
    stepaf_status_t status = stepaf_mpi_check_up("exchange");
    if (status != STEPAF_OK)
        return status;
    if (mpi->exchange_failed)
        return stepaf_boot_fail(STEPAF_ERR_BOOT,
                                "MPI bootstrap: no exchange is possible after one has failed");

    mpi->exchange_failed = 1; /* unless it succeeds */
    struct exchange *exchange = new_exchange(mpi->size);
    if (!exchange)
        return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "MPI bootstrap: no memory for %d ranks",
                                mpi->size);
    status = gather(mpi, exchange, data, bytes, stepaf_boot_deadline(timeout_us));
    if (status == STEPAF_OK) {
        hand_over(mpi, exchange, all_p, offsets_p);
        mpi->exchange_failed = 0;
    }
    free_exchange(exchange);
    return status;
}
