/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of RDMA: meeting, and working out beforehand what is posted. */
#include "verbs.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "verbs_state.h"

enum {
    SPINS = 100000,     /* looks before a rank gives way */
    SPINS_CROWDED = 8,  /* the same where the peer may be waiting for this core */
    DEPTH_MIN = 128,    /* as the library's */
    RECEIVES_MIN = 64,  /* likewise */
    SPARE_RECEIVES = 32 /* beyond two for each place */
};

int perf_verbs_built(void)
{
    return 1;
}

/* Ranks of one connection: attention, FFN. */
static void ends_of(const struct perf_verbs *verbs, int peer, int *a_p, int *f_p)
{
    int attention = verbs->place->role == STEPAF_ATTENTION;

    *a_p = attention ? verbs->place->index : peer;
    *f_p = attention ? peer : verbs->place->index;
}

/* What goes out to @a peer at place @a w, or what comes in. */
static struct perf_parts parts_of(const struct perf_verbs *verbs, int peer, unsigned w, int out)
{
    int attention = verbs->place->role == STEPAF_ATTENTION;
    struct perf_parts parts = {.n = 0};
    int a, f;

    ends_of(verbs, peer, &a, &f);
    if (attention == (out != 0))
        perf_parts_push(verbs->c, verbs->place, verbs->buffers, a, f, w, &parts);
    else
        perf_parts_pull(verbs->c, verbs->place, verbs->buffers, a, f, w, &parts);
    return parts;
}

/* What this rank tells each peer: its end, then where each part of each place goes. */
static size_t offer_bytes(const struct perf_verbs *verbs)
{
    return sizeof(struct perf_verbs_end) +
           (size_t)verbs->c->window * PERF_MAX_PUSH * sizeof(uint64_t);
}

static int make_offers(struct perf_verbs *verbs, char *offers)
{
    for (int peer = 0; peer < verbs->n_conns; peer++) {
        char *offer = offers + (size_t)peer * offer_bytes(verbs);
        uint64_t places[PERF_MAX_PUSH];
        struct perf_verbs_end end;

        verbs->conns[peer].index = (uint32_t)peer;
        if (perf_verbs_qp_make(verbs, &verbs->conns[peer]) != 0)
            return -1;
        perf_verbs_qp_tell(verbs, &verbs->conns[peer], &end);
        memcpy(offer, &end, sizeof(end));
        for (unsigned w = 0; w < verbs->c->window; w++) {
            struct perf_parts parts = parts_of(verbs, peer, w, 0);

            memset(places, 0, sizeof(places));
            for (int i = 0; i < parts.n; i++)
                places[i] = (uintptr_t)parts.iov[i].iov_base;
            memcpy(offer + sizeof(end) + w * sizeof(places), places, sizeof(places));
        }
    }
    return 0;
}

/* The last of a message's requests notifies. */
static void finish_message(const struct perf_verbs *verbs, struct perf_verbs_message *message)
{
    struct ibv_send_wr *last = &message->wr[message->n > 0 ? message->n - 1 : 0];

    for (unsigned i = 0; i < message->n; i++) {
        struct ibv_send_wr *wr = &message->wr[i];

        wr->sg_list = &message->sge[i];
        wr->num_sge = 1;
        wr->next = wr == last ? NULL : wr + 1;
        wr->opcode = IBV_WR_RDMA_WRITE;
        if (message->sge[i].length <= verbs->inline_bytes)
            wr->send_flags = IBV_SEND_INLINE;
        else
            message->signalled = 1;
    }
    message->n += message->n == 0;
    last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    last->imm_data = htonl(1);
}

static void make_messages(struct perf_verbs *verbs, int peer, const char *offer)
{
    struct perf_verbs_conn *conn = &verbs->conns[peer];
    const struct perf_case *c = verbs->c;
    uint64_t places[PERF_MAX_PUSH];
    struct perf_verbs_end far;

    memcpy(&far, offer, sizeof(far));
    conn->messages = verbs->messages + (size_t)peer * c->window;
    finish_message(verbs, &conn->empty);
    for (unsigned w = 0; w < c->window; w++) {
        struct perf_verbs_message *message = &conn->messages[w];
        struct perf_parts parts = parts_of(verbs, peer, w, 1);

        memcpy(places, offer + sizeof(far) + w * sizeof(places), sizeof(places));
        for (int i = 0; i < parts.n; i++) {
            message->sge[i] = (struct ibv_sge){(uintptr_t)parts.iov[i].iov_base,
                                               (uint32_t)parts.iov[i].iov_len, verbs->mr->lkey};
            message->wr[i].wr.rdma.remote_addr = places[i];
            message->wr[i].wr.rdma.rkey = far.rkey;
        }
        message->n = (unsigned)parts.n;
        finish_message(verbs, message);
    }
    for (int s = 0; s < c->n_stages; s++)
        conn->with_parts[s] = verbs->place->role == STEPAF_ATTENTION ? c->stages[s].n_push > 0
                                                                     : c->stages[s].n_pull > 0;
}

/* Read what all ranks have told: this rank's entry in each peer's. */
static int take_offers(struct perf_verbs *verbs, const char *all, const size_t *offsets)
{
    const struct perf_place *place = verbs->place;
    int attention = place->role == STEPAF_ATTENTION;

    for (int peer = 0; peer < verbs->n_conns; peer++) {
        int rank = attention ? place->ffn_world[peer] : place->attn_world[peer];
        const char *offer = all + offsets[rank] + (size_t)place->index * offer_bytes(verbs);
        struct perf_verbs_end far;

        memcpy(&far, offer, sizeof(far));
        if (perf_verbs_qp_connect(verbs, &verbs->conns[peer], &far) != 0)
            return -1;
        make_messages(verbs, peer, offer);
        if (perf_case_active(verbs->c, attention ? peer : place->index))
            verbs->used[verbs->n_used++] = &verbs->conns[peer];
    }
    return 0;
}

static int allocate(struct perf_verbs *verbs)
{
    size_t n = (size_t)verbs->n_conns;

    verbs->conns = calloc(n, sizeof(*verbs->conns));
    verbs->used = calloc(n, sizeof(*verbs->used));
    verbs->messages = calloc(n * verbs->c->window, sizeof(*verbs->messages));
    verbs->refill = calloc(verbs->receives / 2, sizeof(*verbs->refill));
    if (verbs->conns == NULL || verbs->used == NULL || verbs->messages == NULL ||
        verbs->refill == NULL)
        return perf_fail("out of memory");
    for (unsigned i = 0; i + 1 < verbs->receives / 2; i++)
        verbs->refill[i].next = &verbs->refill[i + 1];
    return 0;
}

static int meet(struct perf_job *job, struct perf_verbs *verbs, const char *device)
{
    size_t bytes = (size_t)verbs->n_conns * offer_bytes(verbs);
    char *offers = calloc(1, bytes);
    size_t *offsets = NULL;
    void *all = NULL;
    int rc = offers == NULL ? perf_fail("out of memory") : allocate(verbs);

    if (rc == 0)
        rc = perf_verbs_device_open(verbs, device);
    if (rc == 0)
        rc = make_offers(verbs, offers);
    rc = perf_job_agree(job, rc);
    if (rc == 0)
        rc = perf_job_gather(job, offers, bytes, &all, &offsets);
    if (rc == 0)
        rc = perf_job_agree(job, take_offers(verbs, all, offsets));
    free(offers);
    free(all);
    free(offsets);
    return rc;
}

int perf_verbs_open(struct perf_job *job, const struct perf_options *options,
                    const struct perf_case *c, const struct perf_place *place,
                    const struct perf_buffers *buffers, const char *link,
                    struct perf_verbs **verbs_p)
{
    const char *setting = getenv("STEPAF_NET_DEVICES");
    const char *device = setting != NULL ? setting : "";
    struct perf_verbs *verbs = calloc(1, sizeof(*verbs));
    unsigned receives = 2 * c->window + SPARE_RECEIVES;
    unsigned depth = 2 * c->window * PERF_MAX_PUSH;

    if (link != NULL && strncmp(link, "verbs;", 6) == 0)
        device = link + 6;
    if (perf_job_agree(job, verbs == NULL ? perf_fail("out of memory") : 0) != 0) {
        free(verbs);
        return -1;
    }
    verbs->c = c;
    verbs->place = place;
    verbs->buffers = buffers;
    verbs->recv_each = options->recv_each;
    verbs->spins = place->crowded ? SPINS_CROWDED : SPINS;
    verbs->n_conns = place->role == STEPAF_ATTENTION ? place->ffn : place->attn;
    verbs->receives = receives > RECEIVES_MIN ? receives : RECEIVES_MIN;
    verbs->depth = depth > DEPTH_MIN ? depth : DEPTH_MIN;
    if (meet(job, verbs, device) != 0) {
        perf_verbs_close(verbs);
        return -1;
    }
    *verbs_p = verbs;
    return 0;
}

void perf_verbs_close(struct perf_verbs *verbs)
{
    if (verbs == NULL)
        return;
    perf_verbs_device_close(verbs);
    free(verbs->conns);
    free(verbs->used);
    free(verbs->messages);
    free(verbs->refill);
    free(verbs);
}
