/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange: each rank puts its bytes, one fence brings them to all, and each gets them.
 * PMIx's store accepts no value of 4 MiB, so larger data is split into several values; their
 * number follows from the first, which begins with the total size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boot_pmix.h"
#include "pmix_call.h"

enum {
    CHUNK_BYTES = 1 << 20,
    BYTES_MAX = 16 << 20, /* of a rank and exchange: it stays in the store of every node */
    FIND_NS = 500000000,  /* at most, beyond the deadline, to find the first that has put nothing */
    FIND_SHARE = 4,       /* or of a short one this part */
    FIND_RANKS = 32,      /* asked at once */
    /* A rank without an answer after this time has put nothing. PMIx 5 reports a key together
     * with all that the rank has put so far, which takes tens of milliseconds for some MiB. */
    ANSWER_NS = 200000000
};

/* Before the data in the first value. */
struct head {
    uint64_t magic;
    uint64_t bytes; /* of the whole; above BYTES_MAX: refused, and none of it follows */
};
static const uint64_t MAGIC = 0x737465706166706dULL;

/* The exchange in flight. */
struct exchange {
    struct stepaf_pmix *pmix;
    struct stepaf_pmix_value *values; /* of one get, by rank */
    uint64_t *bytes;                  /* of each rank's data */
    unsigned char *wanted;            /* ranks that have a chunk more */
    char *all;
    int64_t deadline_ns;
};

static void free_exchange(struct exchange *exchange)
{
    for (int rank = 0; exchange->values && rank < exchange->pmix->session->size; rank++)
        free(exchange->values[rank].data);
    free(exchange->values);
    free(exchange->bytes);
    free(exchange->wanted);
    free(exchange->all);
}

static void write_key(const struct stepaf_pmix *pmix, size_t chunk, pmix_key_t key_p)
{
    snprintf(key_p, PMIX_MAX_KEYLEN, "stepaf.%u.%u.%zu", pmix->number, pmix->exchanges, chunk);
}

static size_t chunk_bytes(uint64_t bytes, size_t chunk)
{
    uint64_t begin = (uint64_t)chunk * CHUNK_BYTES;
    uint64_t left = bytes > begin ? bytes - begin : 0;
    return left > CHUNK_BYTES ? CHUNK_BYTES : (size_t)left;
}

static stepaf_status_t put_value(const struct stepaf_pmix *pmix, size_t chunk, char *data,
                                 size_t bytes)
{
    pmix_key_t key;
    pmix_value_t value;
    PMIX_VALUE_CONSTRUCT(&value);
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = data;
    value.data.bo.size = bytes;
    write_key(pmix, chunk, key);
    pmix_status_t code = PMIx_Put(PMIX_GLOBAL, key, &value); /* copies */
    return code == PMIX_SUCCESS ? STEPAF_OK : stepaf_pmix_error(code, "PMIx_Put");
}

/* Put this rank's data. Data that is too large is not put, but its size is: so all ranks reject
 * it. */
static stepaf_status_t put(const struct stepaf_pmix *pmix, const void *data, size_t bytes)
{
    struct head head = {MAGIC, bytes};
    size_t carried = bytes > BYTES_MAX ? 0 : bytes;
    char *buffer = malloc(sizeof head + CHUNK_BYTES);
    stepaf_status_t status = STEPAF_OK;

    if (!buffer)
        return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "PMIx bootstrap: no memory to put %zu bytes",
                                bytes);
    memcpy(buffer, &head, sizeof head);
    for (size_t chunk = 0; status == STEPAF_OK; chunk++) {
        size_t n = chunk_bytes(carried, chunk);
        size_t before = chunk == 0 ? sizeof head : 0;
        if (chunk > 0 && n == 0)
            break;
        if (n > 0)
            memcpy(buffer + before, (const char *)data + chunk * CHUNK_BYTES, n);
        status = put_value(pmix, chunk, buffer, before + n);
    }
    free(buffer);
    if (status != STEPAF_OK)
        return status;
    pmix_status_t code = PMIx_Commit();
    return code == PMIX_SUCCESS ? STEPAF_OK : stepaf_pmix_error(code, "PMIx_Commit");
}

/* Compute where each rank's data goes. Every rank sees the same sizes and reaches the same
 * verdict. */
static stepaf_status_t lay_out(struct exchange *exchange, size_t *offsets_p)
{
    size_t end = 0;
    for (int rank = 0; rank < exchange->pmix->session->size; rank++) {
        const struct stepaf_pmix_value *value = &exchange->values[rank];
        struct head head = {0};
        if (value->bytes >= sizeof head)
            memcpy(&head, value->data, sizeof head);
        if (head.magic == MAGIC && head.bytes > BYTES_MAX)
            return stepaf_boot_fail(STEPAF_ERR_LIMIT,
                                    "PMIx bootstrap: rank %d has %llu bytes to exchange, but the "
                                    "limit over PMIx is %d: declare fewer keys or start with MPI",
                                    rank, (unsigned long long)head.bytes, BYTES_MAX);
        if (head.magic != MAGIC || value->bytes != sizeof head + chunk_bytes(head.bytes, 0))
            return stepaf_boot_fail(STEPAF_ERR_BOOT,
                                    "PMIx bootstrap: the data that rank %d has put are malformed",
                                    rank);
        exchange->bytes[rank] = head.bytes;
        offsets_p[rank] = end;
        end += head.bytes;
    }
    offsets_p[exchange->pmix->session->size] = end;
    exchange->all = malloc(end ? end : 1);
    if (!exchange->all)
        return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "PMIx bootstrap: no memory for %zu bytes",
                                end);
    return STEPAF_OK;
}

/* Copy chunk number @a chunk of the ranks that have one, and determine which ranks have another. */
static stepaf_status_t take_chunk(struct exchange *exchange, size_t chunk, const size_t *offsets,
                                  int *more_p)
{
    size_t before = chunk == 0 ? sizeof(struct head) : 0;
    *more_p = 0;
    for (int rank = 0; rank < exchange->pmix->session->size; rank++) {
        struct stepaf_pmix_value *value = &exchange->values[rank];
        size_t n = chunk_bytes(exchange->bytes[rank], chunk);
        if (value->data && value->bytes != before + n)
            return stepaf_boot_fail(STEPAF_ERR_BOOT,
                                    "PMIx bootstrap: part %zu of the data that rank %d has put "
                                    "does not have the announced size",
                                    chunk, rank);
        if (value->data && n > 0)
            memcpy(exchange->all + offsets[rank] + chunk * CHUNK_BYTES, value->data + before, n);
        free(value->data);
        value->data = NULL;
        exchange->wanted[rank] = chunk_bytes(exchange->bytes[rank], chunk + 1) > 0;
        *more_p |= exchange->wanted[rank];
    }
    return STEPAF_OK;
}

static stepaf_status_t get_all(struct exchange *exchange, size_t *offsets_p)
{
    const struct stepaf_pmix_session *session = exchange->pmix->session;
    stepaf_status_t status = STEPAF_OK;
    int more = 1;

    for (size_t chunk = 0; status == STEPAF_OK && more; chunk++) {
        pmix_key_t key;
        write_key(exchange->pmix, chunk, key);
        status = stepaf_pmix_get(session, key, chunk == 0 ? NULL : exchange->wanted,
                                 exchange->values, exchange->deadline_ns);
        if (status == STEPAF_OK && chunk == 0)
            status = lay_out(exchange, offsets_p);
        if (status == STEPAF_OK)
            status = take_chunk(exchange, chunk, offsets_p, &more);
    }
    return status;
}

/* Return the first of @a n ranks that has put nothing: the server says so or, if it has had the
 * time, gives no answer and need not; -1: none. */
static int first_missing(const signed char *answers, int n, int64_t waited_ns)
{
    for (int i = 0; i < n; i++)
        if (answers[i] == 0)
            return i;
    for (int i = 0; i < n && waited_ns >= ANSWER_NS; i++)
        if (answers[i] == -2)
            return i;
    return -1;
}

/* The fence has failed: name a rank that has not arrived, if one can be found quickly. */
static stepaf_status_t name_missing(const struct exchange *exchange, stepaf_status_t status,
                                    int64_t timeout_ns)
{
    const struct stepaf_pmix_session *session = exchange->pmix->session;
    int64_t find_ns = timeout_ns / FIND_SHARE < FIND_NS ? timeout_ns / FIND_SHARE : FIND_NS;
    int64_t end_ns = stepaf_boot_now_ns() + find_ns;
    const char *late = status == STEPAF_ERR_TIMEOUT ? " in time" : "";
    pmix_key_t key;

    write_key(exchange->pmix, 0, key);
    for (int first = 0, n; first < session->size && stepaf_boot_now_ns() < end_ns; first += n) {
        signed char answers[FIND_RANKS];
        int64_t asked_ns = stepaf_boot_now_ns();
        n = session->size - first < FIND_RANKS ? session->size - first : FIND_RANKS;
        stepaf_status_t asked =
            stepaf_pmix_ask(session, key, first, n, end_ns, "exchange", answers);
        if (asked == STEPAF_ERR_PEER_LOST)
            return asked;
        int missing = first_missing(answers, n, stepaf_boot_now_ns() - asked_ns);
        if (missing >= 0)
            return stepaf_boot_fail(status, "PMIx bootstrap: exchange: rank %d did not arrive%s",
                                    first + missing, late);
        if (asked != STEPAF_OK)
            return stepaf_boot_fail(status, "PMIx bootstrap: exchange: some rank did not arrive%s",
                                    late);
    }
    return status; /* as the fence has reported */
}

static stepaf_status_t gather(struct exchange *exchange, const void *data, size_t bytes,
                              size_t *offsets_p)
{
    const struct stepaf_pmix_session *session = exchange->pmix->session;
    exchange->values = calloc((size_t)session->size, sizeof *exchange->values);
    exchange->bytes = calloc((size_t)session->size, sizeof *exchange->bytes);
    exchange->wanted = calloc((size_t)session->size, sizeof *exchange->wanted);
    if (!exchange->values || !exchange->bytes || !exchange->wanted)
        return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "PMIx bootstrap: no memory for %d ranks",
                                session->size);
    stepaf_status_t status = put(exchange->pmix, data, bytes);
    if (status != STEPAF_OK)
        return status;
    int64_t began_ns = stepaf_boot_now_ns();
    status = stepaf_pmix_fence(session, exchange->deadline_ns, "exchange");
    if (status == STEPAF_ERR_TIMEOUT || status == STEPAF_ERR_BOOT)
        return name_missing(exchange, status, exchange->deadline_ns - began_ns);
    return status == STEPAF_OK ? get_all(exchange, offsets_p) : status;
}

stepaf_status_t stepaf_pmix_allgather(void *self, const void *data, size_t bytes, void **all_p,
                                      size_t *offsets_p, int64_t timeout_us)
{
    struct stepaf_pmix *pmix = self;
    size_t size = (size_t)pmix->session->size + 1;
    struct exchange exchange = {.pmix = pmix, .deadline_ns = stepaf_boot_deadline(timeout_us)};

    if (pmix->exchange_failed)
        return stepaf_boot_fail(STEPAF_ERR_BOOT,
                                "PMIx bootstrap: no exchange is possible after one has failed");
    pmix->exchange_failed = 1; /* unless it succeeds */
    pmix->exchanges++;
    size_t *offsets = calloc(size, sizeof *offsets);
    if (!offsets)
        return stepaf_boot_fail(STEPAF_ERR_NO_MEMORY, "PMIx bootstrap: no memory for %d ranks",
                                pmix->session->size);
    stepaf_status_t status = gather(&exchange, data, bytes, offsets);
    if (status == STEPAF_OK) {
        memcpy(offsets_p, offsets, size * sizeof *offsets);
        *all_p = exchange.all;
        exchange.all = NULL;
        pmix->exchange_failed = 0;
    }
    free_exchange(&exchange);
    free(offsets);
    return status;
}
