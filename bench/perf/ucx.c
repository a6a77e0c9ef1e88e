/* SPDX-License-Identifier: Apache-2.0 */
/* The floor of UCX: meeting, and working out beforehand what is sent. */
#include "ucx.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "ucx_state.h"

enum {
    SPINS = 100000,   /* looks before a rank gives way */
    SPINS_CROWDED = 8 /* the same where the peer may be waiting for this core */
};

int perf_ucx_built(void)
{
    return 1;
}

/* What goes out to @a peer at place @a w, or what comes in. */
static struct perf_parts parts_of(const struct perf_ucx *ucx, int peer, unsigned w, int out)
{
    int attention = ucx->place->role == STEPAF_ATTENTION;
    int a = attention ? ucx->place->index : peer, f = attention ? peer : ucx->place->index;
    struct perf_parts parts = {.n = 0};

    if (attention == (out != 0))
        perf_parts_push(ucx->c, ucx->place, ucx->buffers, a, f, w, &parts);
    else
        perf_parts_pull(ucx->c, ucx->place, ucx->buffers, a, f, w, &parts);
    return parts;
}

static void work_out(struct perf_ucx *ucx, int peer)
{
    struct perf_ucx_conn *conn = &ucx->conns[peer];
    const struct perf_case *c = ucx->c;
    int attention = ucx->place->role == STEPAF_ATTENTION;

    conn->ucx = ucx;
    conn->messages = ucx->messages + (size_t)peer * c->window;
    for (unsigned w = 0; w < c->window; w++) {
        struct perf_ucx_message *message = &conn->messages[w];

        message->out = parts_of(ucx, peer, w, 1);
        message->in = parts_of(ucx, peer, w, 0);
        for (unsigned i = 0; i < PERF_MAX_PUSH; i++)
            message->heads[i] =
                (struct perf_ucx_head){(uint32_t)ucx->place->index, (uint16_t)w, (uint16_t)i};
    }
    for (int s = 0; s < c->n_stages; s++) {
        int push = c->stages[s].n_push > 0, pull = c->stages[s].n_pull > 0;

        conn->out_parts[s] = attention ? push : pull;
        conn->in_parts[s] = attention ? pull : push;
    }
}

/* Connect to all peers, by what all ranks have told. */
static int connect_all(struct perf_ucx *ucx, const char *all, const size_t *offsets)
{
    const struct perf_place *place = ucx->place;
    int attention = place->role == STEPAF_ATTENTION;
    struct perf_ucx_end end;

    for (int peer = 0; peer < ucx->n_conns; peer++) {
        int rank = attention ? place->ffn_world[peer] : place->attn_world[peer];

        memcpy(&end, all + offsets[rank], sizeof(end));
        work_out(ucx, peer);
        if (perf_ucx_worker_connect(ucx, &end, &ucx->conns[peer].ep) != 0)
            return -1;
        if (perf_case_active(ucx->c, attention ? peer : place->index))
            ucx->used[ucx->n_used++] = &ucx->conns[peer];
    }
    return 0;
}

static int allocate(struct perf_ucx *ucx)
{
    size_t n = (size_t)ucx->n_conns;

    ucx->conns = calloc(n, sizeof(*ucx->conns));
    ucx->used = calloc(n, sizeof(*ucx->used));
    ucx->messages = calloc(n * ucx->c->window, sizeof(*ucx->messages));
    return ucx->conns == NULL || ucx->used == NULL || ucx->messages == NULL
               ? perf_fail("out of memory")
               : 0;
}

static int meet(struct perf_job *job, struct perf_ucx *ucx)
{
    struct perf_ucx_end end = {0};
    size_t *offsets = NULL;
    void *all = NULL;
    int rc = allocate(ucx);

    if (rc == 0)
        rc = perf_ucx_worker_open(ucx, &end);
    rc = perf_job_agree(job, rc);
    if (rc == 0)
        rc = perf_job_gather(job, &end, sizeof(end), &all, &offsets);
    if (rc == 0)
        rc = perf_job_agree(job, connect_all(ucx, all, offsets));
    free(all);
    free(offsets);
    return rc;
}

int perf_ucx_open(struct perf_job *job, const struct perf_options *options,
                  const struct perf_case *c, const struct perf_place *place,
                  const struct perf_buffers *buffers, struct perf_ucx **ucx_p)
{
    struct perf_ucx *ucx = calloc(1, sizeof(*ucx));

    if (perf_job_agree(job, ucx == NULL ? perf_fail("out of memory") : 0) != 0) {
        free(ucx);
        return -1;
    }
    ucx->c = c;
    ucx->place = place;
    ucx->buffers = buffers;
    ucx->recv_each = options->recv_each;
    ucx->spins = place->crowded ? SPINS_CROWDED : SPINS;
    ucx->n_conns = place->role == STEPAF_ATTENTION ? place->ffn : place->attn;
    if (meet(job, ucx) != 0) {
        perf_ucx_close(ucx);
        return -1;
    }
    *ucx_p = ucx;
    return 0;
}

void perf_ucx_close(struct perf_ucx *ucx)
{
    if (ucx == NULL)
        return;
    perf_ucx_worker_close(ucx);
    free(ucx->conns);
    free(ucx->used);
    free(ucx->messages);
    free(ucx);
}
