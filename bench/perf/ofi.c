/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of libfabric: connecting, and planning of the writes. */
#include "ofi.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "ofi_state.h"

enum {
    SPINS = 100000,   /* polls before a rank yields */
    SPINS_CROWDED = 8 /* the same where the peer may be waiting for this core */
};

int perf_ofi_built(void)
{
    return 1;
}

/* Plan the outgoing or incoming message of @a peer at place @a w. */
static struct perf_parts parts_of(const struct perf_ofi *ofi, int peer, unsigned w, int out)
{
    int attention = ofi->place->role == STEPAF_ATTENTION;
    int a = attention ? ofi->place->index : peer, f = attention ? peer : ofi->place->index;
    struct perf_parts parts = {.n = 0};

    if (attention == (out != 0))
        perf_parts_push(ofi->c, ofi->place, ofi->buffers, a, f, w, &parts);
    else
        perf_parts_pull(ofi->c, ofi->place, ofi->buffers, a, f, w, &parts);
    return parts;
}

/* What this rank sends to each peer: its endpoint, then where each part of each place goes. */
static size_t offer_bytes(const struct perf_ofi *ofi)
{
    return sizeof(struct perf_ofi_end) + (size_t)ofi->c->window * PERF_MAX_PUSH * sizeof(uint64_t);
}

static void make_offers(struct perf_ofi *ofi, const struct perf_ofi_end *end, char *offers)
{
    for (int peer = 0; peer < ofi->n_conns; peer++) {
        char *offer = offers + (size_t)peer * offer_bytes(ofi);
        uint64_t places[PERF_MAX_PUSH];

        memcpy(offer, end, sizeof(*end));
        for (unsigned w = 0; w < ofi->c->window; w++) {
            struct perf_parts parts = parts_of(ofi, peer, w, 0);

            memset(places, 0, sizeof(places));
            for (int i = 0; i < parts.n; i++)
                places[i] =
                    end->base + (uint64_t)((char *)parts.iov[i].iov_base - ofi->buffers->base);
            memcpy(offer + sizeof(*end) + w * sizeof(places), places, sizeof(places));
        }
    }
}

static int take_offer(struct perf_ofi *ofi, int peer, const char *offer)
{
    struct perf_ofi_conn *conn = &ofi->conns[peer];
    const struct perf_case *c = ofi->c;
    int attention = ofi->place->role == STEPAF_ATTENTION;
    struct perf_ofi_end far;

    memcpy(&far, offer, sizeof(far));
    if (fi_av_insert(ofi->av, far.address, 1, &conn->address, 0, NULL) != 1)
        return perf_fail("plain libfabric: libfabric rejects a peer's address");
    conn->key = far.key;
    conn->base = far.base;
    conn->messages = ofi->messages + (size_t)peer * c->window;
    conn->n_in = ofi->n_in + (size_t)peer * c->window;
    for (unsigned w = 0; w < c->window; w++) {
        conn->messages[w].parts = parts_of(ofi, peer, w, 1);
        memcpy(conn->messages[w].to, offer + sizeof(far) + w * sizeof(conn->messages[w].to),
               sizeof(conn->messages[w].to));
        conn->n_in[w] = (unsigned)parts_of(ofi, peer, w, 0).n;
    }
    for (int s = 0; s < c->n_stages; s++) {
        int push = c->stages[s].n_push > 0, pull = c->stages[s].n_pull > 0;

        conn->out_parts[s] = attention ? push : pull;
        conn->in_parts[s] = attention ? pull : push;
    }
    return 0;
}

/* Read the data of all ranks: this rank's entry in each peer's. */
static int take_offers(struct perf_ofi *ofi, const char *all, const size_t *offsets)
{
    const struct perf_place *place = ofi->place;
    int attention = place->role == STEPAF_ATTENTION;

    for (int peer = 0; peer < ofi->n_conns; peer++) {
        int rank = attention ? place->ffn_world[peer] : place->attn_world[peer];

        if (take_offer(ofi, peer, all + offsets[rank] + (size_t)place->index * offer_bytes(ofi)))
            return -1;
        if (perf_case_active(ofi->c, attention ? peer : place->index))
            ofi->used[ofi->n_used++] = &ofi->conns[peer];
    }
    return 0;
}

static int allocate(struct perf_ofi *ofi)
{
    size_t n = (size_t)ofi->n_conns;

    ofi->conns = calloc(n, sizeof(*ofi->conns));
    ofi->used = calloc(n, sizeof(*ofi->used));
    ofi->messages = calloc(n * ofi->c->window, sizeof(*ofi->messages));
    ofi->n_in = calloc(n * ofi->c->window, sizeof(*ofi->n_in));
    ofi->ops = calloc(PERF_OFI_DEPTH, sizeof(*ofi->ops));
    if (ofi->conns == NULL || ofi->used == NULL || ofi->messages == NULL || ofi->n_in == NULL ||
        ofi->ops == NULL)
        return perf_fail("out of memory");
    for (int i = 0; i < PERF_OFI_DEPTH; i++) {
        ofi->ops[i].next = ofi->free_op;
        ofi->free_op = &ofi->ops[i];
    }
    return 0;
}

static int meet(struct perf_job *job, struct perf_ofi *ofi, const char *provider)
{
    size_t bytes = (size_t)ofi->n_conns * offer_bytes(ofi);
    char *offers = calloc(1, bytes);
    struct perf_ofi_end end = {0};
    size_t *offsets = NULL;
    void *all = NULL;
    int rc = offers == NULL ? perf_fail("out of memory") : allocate(ofi);

    if (rc == 0)
        rc = perf_ofi_fabric_open(ofi, provider, &end);
    if (rc == 0)
        make_offers(ofi, &end, offers);
    rc = perf_job_agree(job, rc);
    if (rc == 0)
        rc = perf_job_gather(job, offers, bytes, &all, &offsets);
    if (rc == 0)
        rc = perf_job_agree(job, take_offers(ofi, all, offsets));
    free(offers);
    free(all);
    free(offsets);
    return rc;
}

int perf_ofi_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_case *c, const struct perf_place *place,
                  const struct perf_buffers *buffers, const char *link, struct perf_ofi **ofi_p)
{
    const char *setting = getenv("STEPAF_OFI_PROVIDER");
    const char *provider = setting != NULL ? setting : "";
    struct perf_ofi *ofi = calloc(1, sizeof(*ofi));

    if (link != NULL && strncmp(link, "ofi;", 4) == 0)
        provider = link + 4;
    if (perf_job_agree(job, ofi == NULL ? perf_fail("out of memory") : 0) != 0) {
        free(ofi);
        return -1;
    }
    ofi->c = c;
    ofi->place = place;
    ofi->buffers = buffers;
    ofi->recv_each = options->recv_each;
    ofi->spins = place->crowded ? SPINS_CROWDED : SPINS;
    ofi->n_conns = place->role == STEPAF_ATTENTION ? place->ffn : place->attn;
    if (meet(job, ofi, provider) != 0) {
        perf_ofi_close(ofi);
        return -1;
    }
    *ofi_p = ofi;
    return 0;
}

void perf_ofi_close(struct perf_ofi *ofi)
{
    if (ofi == NULL)
        return;
    perf_ofi_fabric_close(ofi);
    free(ofi->conns);
    free(ofi->used);
    free(ofi->messages);
    free(ofi->n_in);
    free(ofi->ops);
    free(ofi);
}
