/* SPDX-License-Identifier: Apache-2.0 */
#include "baseline_mpi.h"

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "attend.h"
#include "fail.h"

/* MPICH's MPI_STATUSES_IGNORE is the address 1: gcc sees an array there, of no elements. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

/* The messages between this rank and its peers for one stage of one place of the window:
 * receives, then sends. An attention rank has one set for all FFN ranks, as it starts and waits
 * for all; an FFN rank has one for each attention rank. */
struct set {
    MPI_Request *requests;
    int n_recv, n_send;
};

struct perf_mpi {
    const struct perf_case *c;
    const struct perf_place *place;
    const struct perf_buffers *buffers;
    int recv_each;
    MPI_Comm comm;
    struct set *sets; /* by attention rank (FFN side), stage and place */
    int n_sets;
    MPI_Request *requests;
};

static int mpi_fail(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    MPI_Error_string(code, text, &length);
    return perf_fail("%s: %.*s", call, length, text);
}

static inline struct set *set_of(const struct perf_mpi *mpi, int a, int stage, unsigned w)
{
    return &mpi->sets[((size_t)a * (size_t)mpi->c->n_stages + (size_t)stage) * mpi->c->window + w];
}

static int start(void *self, unsigned w, int stage)
{
    struct set *set = set_of(self, 0, stage, w);
    int rc = MPI_Startall(set->n_recv + set->n_send, set->requests);

    return rc == MPI_SUCCESS ? 0 : mpi_fail(rc, "MPI_Startall");
}

static int wait(void *self, unsigned w, int stage)
{
    struct set *set = set_of(self, 0, stage, w);
    int rc = MPI_Waitall(set->n_recv + set->n_send, set->requests, MPI_STATUSES_IGNORE);

    return rc == MPI_SUCCESS ? 0 : mpi_fail(rc, "MPI_Waitall");
}

/* The FFN side's position, by attention rank. */
struct turn {
    uint64_t left;
    unsigned place;
    int stage;
};

/* Answer the set that has arrived, and receive into it again if more will follow. */
static int answer(struct perf_mpi *mpi, struct set *set, struct turn *turn)
{
    const struct perf_case *c = mpi->c;
    MPI_Request *sends = set->requests + set->n_recv;
    int rc = MPI_Waitall(set->n_send, sends, MPI_STATUSES_IGNORE); /* of the previous answer */

    if (rc == MPI_SUCCESS)
        rc = MPI_Startall(set->n_send, sends);
    if (rc == MPI_SUCCESS && turn->left > (uint64_t)c->n_stages * c->window)
        rc = MPI_Startall(set->n_recv, set->requests);
    turn->left--;
    if (++turn->place == c->window) {
        turn->place = 0;
        turn->stage = turn->stage == c->n_stages - 1 ? 0 : turn->stage + 1;
    }
    return rc == MPI_SUCCESS ? 0 : mpi_fail(rc, "MPI_Startall");
}

static int serve_turns(struct perf_mpi *mpi, struct turn *turns, uint64_t left)
{
    const struct perf_case *c = mpi->c;
    int in_order = mpi->recv_each || c->attn == 1;

    for (int a = 0; left > 0; a = a == c->attn - 1 ? 0 : a + 1) {
        struct turn *turn = &turns[a];
        struct set *set = set_of(mpi, a, turn->stage, turn->place);
        int there = 1;
        int rc;

        if (turn->left == 0)
            continue;
        if (in_order)
            rc = MPI_Waitall(set->n_recv, set->requests, MPI_STATUSES_IGNORE);
        else
            rc = MPI_Testall(set->n_recv, set->requests, &there, MPI_STATUSES_IGNORE);
        if (rc != MPI_SUCCESS)
            return mpi_fail(rc, "MPI_Testall");
        if (!there)
            continue;
        if (answer(mpi, set, turn) != 0)
            return -1;
        left--;
    }
    return 0;
}

static int serve(struct perf_mpi *mpi, uint64_t ops)
{
    const struct perf_case *c = mpi->c;
    uint64_t each = ops * (uint64_t)c->n_stages;
    struct turn *turns;
    int rc = 0;

    if (ops == 0 || !perf_case_active(c, mpi->place->index))
        return 0;
    turns = calloc((size_t)c->attn, sizeof(*turns));
    if (turns == NULL)
        return perf_fail("out of memory");
    for (int a = 0; a < c->attn; a++)
        turns[a].left = each;
    for (int i = 0; i < mpi->n_sets && rc == MPI_SUCCESS; i++)
        rc = MPI_Startall(mpi->sets[i].n_recv, mpi->sets[i].requests);
    rc = rc == MPI_SUCCESS ? serve_turns(mpi, turns, each * (uint64_t)c->attn)
                           : mpi_fail(rc, "MPI_Startall");
    for (int i = 0; i < mpi->n_sets && rc == 0; i++) {
        struct set *set = &mpi->sets[i];
        int code = MPI_Waitall(set->n_send, set->requests + set->n_recv, MPI_STATUSES_IGNORE);

        if (code != MPI_SUCCESS)
            rc = mpi_fail(code, "MPI_Waitall");
    }
    free(turns);
    return rc;
}

int perf_mpi_run(void *self, struct perf_block *block)
{
    struct perf_mpi *mpi = self;

    if (mpi->place->role == STEPAF_FFN)
        return serve(mpi, block->lead_ops + block->timed_ops);
    return perf_attend_block(mpi->c, mpi, start, wait, block);
}

/* The next message of a set being made. */
static int add(struct perf_mpi *mpi, struct set *set, int send, void *data, size_t bytes, int peer,
               int tag)
{
    MPI_Request *request = &set->requests[set->n_recv + set->n_send];
    int rc;

    if (bytes > INT_MAX)
        return perf_fail("MPI messages are at most %d bytes", INT_MAX);
    if (send)
        rc = MPI_Send_init(data, (int)bytes, MPI_BYTE, peer, tag, mpi->comm, request);
    else
        rc = MPI_Recv_init(data, (int)bytes, MPI_BYTE, peer, tag, mpi->comm, request);
    if (rc != MPI_SUCCESS)
        return mpi_fail(rc, send ? "MPI_Send_init" : "MPI_Recv_init");
    set->n_recv += !send;
    set->n_send += send;
    return 0;
}

/* The messages for the pushes, or the empty one in place of none. */
static int add_push(struct perf_mpi *mpi, struct set *set, int a, int f, int stage, unsigned w)
{
    const struct perf_case *c = mpi->c;
    const struct perf_buffers *b = mpi->buffers;
    int send = mpi->place->role == STEPAF_ATTENTION;
    int peer = send ? mpi->place->ffn_world[f] : mpi->place->attn_world[a];
    int tag = (stage * (int)c->window + (int)w) * (PERF_MAX_PUSH + 1);
    unsigned m = w % c->microbatches;

    if (c->stages[stage].n_push == 0)
        return add(mpi, set, send, b->base, 0, peer, tag);
    for (int t = 0; t < c->n_push; t++) {
        size_t offset;
        size_t bytes = perf_case_slice(c, &c->push[t], f, &offset);
        char *data = send ? perf_buffers_push(b, m, t) + offset
                          : perf_buffers_recv(b, m, t) + (size_t)a * b->push_stride[t] +
                                w / c->microbatches * perf_case_largest(c, &c->push[t], NULL);

        if (add(mpi, set, send, data, bytes, peer, tag + t) != 0)
            return -1;
    }
    return 0;
}

/* The message for the answer, or the empty one that says that all has arrived. */
static int add_pull(struct perf_mpi *mpi, struct set *set, int a, int f, int stage, unsigned w)
{
    const struct perf_case *c = mpi->c;
    const struct perf_buffers *b = mpi->buffers;
    int send = mpi->place->role == STEPAF_FFN;
    int peer = send ? mpi->place->attn_world[a] : mpi->place->ffn_world[f];
    int tag = (stage * (int)c->window + (int)w) * (PERF_MAX_PUSH + 1) + PERF_MAX_PUSH;
    char *data;

    if (c->stages[stage].n_pull == 0)
        return add(mpi, set, send, b->base, 0, peer, tag);
    data = send ? perf_buffers_answer(b, a, w)
                : perf_buffers_pull(b, w % c->microbatches, f) +
                      w / c->microbatches * perf_case_largest(c, &c->pull, NULL);
    return add(mpi, set, send, data, perf_case_slice(c, &c->pull, f, NULL), peer, tag);
}

/* Receives come first, so that they are posted before anything is sent. */
static int make_set(struct perf_mpi *mpi, struct set *set, int a, int stage, unsigned w)
{
    const struct perf_case *c = mpi->c;
    int f = mpi->place->index;

    if (mpi->place->role == STEPAF_FFN) {
        if (!perf_case_active(c, f))
            return 0;
        return add_push(mpi, set, a, f, stage, w) != 0 || add_pull(mpi, set, a, f, stage, w) != 0
                   ? -1
                   : 0;
    }
    for (f = 0; f < c->ffn; f++) {
        if (perf_case_active(c, f) && add_pull(mpi, set, mpi->place->index, f, stage, w) != 0)
            return -1;
    }
    for (f = 0; f < c->ffn; f++) {
        if (perf_case_active(c, f) && add_push(mpi, set, mpi->place->index, f, stage, w) != 0)
            return -1;
    }
    return 0;
}

static int make_sets(struct perf_mpi *mpi)
{
    const struct perf_case *c = mpi->c;
    int peers = mpi->place->role == STEPAF_FFN ? c->attn : 1;
    size_t per_set = PERF_MAX_PUSH + 1;
    int i = 0;

    if (mpi->place->role == STEPAF_ATTENTION)
        per_set *= (size_t)c->ffn;
    mpi->n_sets = peers * c->n_stages * (int)c->window;
    mpi->sets = calloc((size_t)mpi->n_sets, sizeof(*mpi->sets));
    mpi->requests = malloc((size_t)mpi->n_sets * per_set * sizeof(*mpi->requests));
    if (mpi->sets == NULL || mpi->requests == NULL)
        return perf_fail("out of memory");
    for (int a = 0; a < peers; a++) {
        for (int stage = 0; stage < c->n_stages; stage++) {
            for (unsigned w = 0; w < c->window; w++, i++) {
                mpi->sets[i].requests = mpi->requests + (size_t)i * per_set;
                if (make_set(mpi, &mpi->sets[i], a, stage, w) != 0)
                    return -1;
            }
        }
    }
    return 0;
}

int perf_mpi_open(const struct perf_options *options, const struct perf_case *c,
                  const struct perf_place *place, const struct perf_buffers *buffers,
                  struct perf_mpi **mpi_p)
{
    struct perf_mpi *mpi = calloc(1, sizeof(*mpi));

    if (mpi == NULL)
        return perf_fail("out of memory");
    *mpi_p = mpi;
    mpi->c = c;
    mpi->place = place;
    mpi->buffers = buffers;
    mpi->recv_each = options->recv_each;
    mpi->comm = MPI_COMM_NULL;
    if (MPI_Comm_dup(MPI_COMM_WORLD, &mpi->comm) != MPI_SUCCESS)
        return perf_fail("MPI_Comm_dup failed");
    MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    return make_sets(mpi);
}

void perf_mpi_close(struct perf_mpi *mpi)
{
    if (mpi == NULL)
        return;
    for (int i = 0; i < mpi->n_sets && mpi->sets != NULL; i++) {
        for (int r = 0; r < mpi->sets[i].n_recv + mpi->sets[i].n_send; r++)
            MPI_Request_free(&mpi->sets[i].requests[r]);
    }
    if (mpi->comm != MPI_COMM_NULL)
        MPI_Comm_free(&mpi->comm);
    free(mpi->requests);
    free(mpi->sets);
    free(mpi);
}
