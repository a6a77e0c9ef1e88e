/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's two loops, explained in docs/engine.md. Attention ranks keep three microbatches in
 * flight, whose rows are divided among the remaining FFN ranks; each of these has the weights of
 * all layers. "engine lose" kills the last FFN rank during the run, "engine late" stops it, and
 * "engine leave" kills the last attention rank. */
#include "engine_model.h"

enum { LAYER = 1, X = 2, Y = 3, KEYS = 10 }; /* of microbatch m: m * KEYS + LAYER and so on */

struct microbatch {
    int *layer;
    float *x, *y;          /* y: a buffer for each FFN rank's answer */
    stepaf_tensor_t *push; /* of FFN rank f: 2 f is the layer, 2 f + 1 its rows */
    stepaf_plan_h plan;
    stepaf_request_h request;
};

static int n_peers, n_left, me; /* n_left peers are not lost; is_left says which: */
static char *is_left;

/* Push each FFN rank its share. A lost rank has a share of 0 bytes, so it is left out. */
static void begin(struct microbatch *m, int layer)
{
    stepaf_start_params_t params = {.field_mask =
                                        STEPAF_START_PARAM_PUSH | STEPAF_START_PARAM_FLAGS,
                                    .flags = STEPAF_START_WAIT,
                                    .push = m->push,
                                    .n_push = 2 * n_peers};
    *m->layer = layer;
    for (int f = 0, i = 0; f < n_peers; i += is_left[f++]) {
        int first = ROWS * i / n_left, rows = layer == STOP ? 0 : ROWS * (i + 1) / n_left - first;
        m->push[2 * f].bytes = is_left[f] ? sizeof(*m->layer) : 0;
        m->push[2 * f + 1].data = m->x + first * WIDTH;
        m->push[2 * f + 1].bytes = is_left[f] ? (size_t)rows * ROW_BYTES : 0;
    }
    stepaf_status_t status = stepaf_start_with(m->plan, &params, &m->request);
    if (status == STEPAF_ERR_PEER_LOST) { /* nothing has been sent */
        int before = n_left;
        for (int f = n_left = 0; f < n_peers; f++)
            n_left += is_left[f] = (char)!is_lost(f);
        if (n_left > 0 && n_left < before) {
            begin(m, layer);
            return;
        }
    }
    check(status);
}

/* Wait for all answers, and add them. If one was lost, the others repeat the operation: x has not
 * changed yet, and the microbatch has a plan of its own, so no other microbatch has to wait. */
static void end(struct microbatch *m)
{
    for (int late = 0, status = -1; status != STEPAF_OK;) {
        status = stepaf_wait(m->request, STEPAF_TIMEOUT_DEFAULT);
        if (status == STEPAF_ERR_PEER_LOST) {
            printf("lost: %s\n", stepaf_last_error()->text);
            begin(m, *m->layer);
        } else if (status == STEPAF_ERR_TIMEOUT && late++ < PATIENCE) {
            printf("late: %s\n", stepaf_last_error()->text); /* or stepaf_cancel */
            fflush(stdout);
        } else {
            check(status);
        }
    }
    for (int f = 0; f < n_peers;
         f++) /* m->push has the shares as sent, whichever rank was lost since */
        for (size_t i = 0; i < m->push[2 * f + 1].bytes / sizeof(float); i++)
            ((float *)m->push[2 * f + 1].data)[i] += m->y[(size_t)f * N + i];
}

static void prepare(struct microbatch *m, int number)
{
    uint64_t keys = (uint64_t)number * KEYS;
    stepaf_tensor_t *pull = calloc((size_t)n_peers, sizeof(*pull));
    m->layer = allocate(sizeof(*m->layer));
    m->x = allocate(BYTES);
    m->y = allocate((size_t)n_peers * BYTES);
    m->push = calloc((size_t)n_peers, 2 * sizeof(*m->push));
    for (int f = 0; f < n_peers; f++) {
        m->push[2 * f] = (stepaf_tensor_t){keys + LAYER, m->layer, sizeof(*m->layer)};
        m->push[2 * f + 1] = (stepaf_tensor_t){keys + X, m->x, BYTES};
        pull[f] = (stepaf_tensor_t){keys + Y, m->y + (size_t)f * N, BYTES};
    }
    check(stepaf_plan_create(ctx, m->push, 2, pull, n_peers, STEPAF_PLAN_SCATTER, &m->plan));
    free(pull);
    for (int i = 0; i < N; i++)
        m->x[i] = input(number, i);
}

static void attend(void)
{
    struct microbatch all[MICROBATCHES], *m;
    int wrong = 0;
    for (int i = 0; i < MICROBATCHES; i++)
        prepare(&all[i], i);
    check(stepaf_commit(ctx)); /* all ranks together */
    for (int layer = 0; layer <= LAYERS; layer++)
        for (m = all; m < all + MICROBATCHES; m++) {
            if (layer > 0)
                end(m); /* the other two are in flight meanwhile */
            if (layer == LAYERS)
                continue; /* here an engine samples tokens, and starts over */
            for (int i = 0; i < N; i++)
                m->x[i] = attention(m->x[i]);
            begin(m, layer);
            if (layer == LAYERS / 2 && me == stepaf_size(ctx, STEPAF_GROUP_ATTENTION) - 1)
                suffer("leave", SIGKILL);
        }
    for (int i = 0; i < MICROBATCHES * N; i++)
        wrong += all[i / N].x[i % N] != expected(i / N, i % N);
    begin(all, STOP);
    end(all);
    printf("attention rank %d: %d of %d wrong, %d of %d FFN ranks left\n", me, wrong,
           MICROBATCHES * N, n_left, n_peers);
}

/* Answer batches in order of arrival, until all attention ranks have sent STOP or are lost. */
static void serve(void)
{
    float *y = allocate((size_t)n_peers * MICROBATCHES * BYTES);
    char *has_ended = calloc((size_t)n_peers, 1);
    check(stepaf_commit(ctx));
    for (int n = 0, n_ended = 0; n_ended < n_peers;) {
        stepaf_tensor_info_t in = {.size = sizeof(in)}, x = {.size = sizeof(x)};
        stepaf_batch_info_t from = {.size = sizeof(from)};
        stepaf_batch_h batch;
        stepaf_status_t status =
            stepaf_recv(ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n);
        if (status == STEPAF_ERR_PEER_LOST)
            break;                          /* all attention ranks are lost */
        if (status == STEPAF_ERR_TIMEOUT) { /* no peer had anything for this rank */
            for (int a = n_ended = 0; a < n_peers; a++)
                n_ended += has_ended[a] || is_lost(a);
            continue;
        }
        check(status);
        check(stepaf_batch_query(batch, &from));
        check(stepaf_batch_tensor(batch, 0, &in));
        check(stepaf_batch_tensor(batch, 1, &x));
        int layer = *(const int *)in.data;
        if (layer == LAYERS / 2 && me == stepaf_size(ctx, STEPAF_GROUP_FFN) - 1) {
            suffer("lose", SIGKILL);
            suffer("late", SIGSTOP);
        }
        /* The buffer is in use until the next batch of the same rank and plan has arrived. */
        int a = stepaf_peer_index(ctx, from.attention_rank);
        size_t place = (size_t)a * MICROBATCHES + from.plan;
        for (size_t i = 0; i < x.bytes / sizeof(float); i++)
            y[place * N + i] = experts(((const float *)x.data)[i], layer);
        stepaf_tensor_t answer = {from.plan * KEYS + Y, y + place * N, x.bytes};
        status = stepaf_respond(batch, &answer, 1, STEPAF_RESPOND_RELEASE, NULL);
        if (status == STEPAF_ERR_PEER_LOST || status == STEPAF_ERR_CANCELED)
            status = stepaf_release(batch); /* no peer waits for the answer any more */
        check(status);
        if (layer == STOP)
            n_ended += has_ended[a] = 1;
    }
    free(has_ended);
}

int main(int argc, char **argv)
{
    trouble = argc > 1 ? argv[1] : "";
    check(stepaf_init(NULL, NULL, &ctx)); /* through the launcher that started this process */
    int is_attention = stepaf_role(ctx) == STEPAF_ATTENTION;
    me = stepaf_rank(ctx, is_attention ? STEPAF_GROUP_ATTENTION : STEPAF_GROUP_FFN);
    n_left = n_peers = stepaf_n_peers(ctx); /* of the other role: all, unless the mesh has lanes */
    is_left = memset(malloc((size_t)n_peers), 1, (size_t)n_peers);
    for (uint64_t keys = 0; keys < (uint64_t)MICROBATCHES * KEYS; keys += KEYS) {
        check(stepaf_key_declare(ctx, keys + LAYER, STEPAF_PUSH, sizeof(int), NULL));
        check(stepaf_key_declare(ctx, keys + X, STEPAF_PUSH, BYTES, NULL));
        check(stepaf_key_declare(ctx, keys + Y, STEPAF_PULL, BYTES, NULL));
    }
    if (is_attention)
        attend();
    else
        serve();
    stepaf_finalize(ctx);
    free(is_left);
    return 0;
}
