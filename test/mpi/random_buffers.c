/* SPDX-License-Identifier: Apache-2.0 */
/* The random test's FFN side: receive buffers of its own, cut into slices by attention rank. */
#include "random_ffn.h"

#include <stdlib.h>

static struct hs_job *f_job;
static const struct r_model *f_model;
static struct r_arena arenas[R_PHASES][2]; /* [1]: registered memory */
static unsigned char *buffers[R_PLANS][R_PUSH];

/* A key's slices are for all ranks in order, for all backwards, or for the odd ones only. */
static int slices(const struct r_key *key, int *ranks)
{
    int how = (int)(key->id % 3), n = 0;

    for (int a = f_model->attn - 1; a >= 0; a--)
        if (how == 1 || (how == 2 && a % 2 == 1))
            ranks[n++] = a;
    if (n == 0)
        for (int a = 0; a < f_model->attn; a++)
            ranks[n++] = a;
    return n;
}

static size_t slice_bytes(const struct r_key *key)
{
    return key->depth * key->max + key->id % 7;
}

static void lay_out(int phase)
{
    int ranks[R_ATTN];

    for (int p = 0; p < f_model->n_plans; p++)
        for (int i = 0; i < f_model->plans[p].n_push && f_model->plans[p].first == phase; i++) {
            const struct r_key *key = &f_model->plans[p].push[i];
            if (key->own_recv)
                buffers[p][i] = r_arena_take(&arenas[phase][key->own_recv - 1],
                                             slice_bytes(key) * (size_t)slices(key, ranks));
        }
}

static bool register_buffers(int phase)
{
    int ranks[R_ATTN];

    for (int p = 0; p < f_model->n_plans; p++)
        for (int i = 0; i < f_model->plans[p].n_push && f_model->plans[p].first == phase; i++) {
            const struct r_key *key = &f_model->plans[p].push[i];
            int n = slices(key, ranks);
            for (int at = 0; at < n; at++)
                ranks[at] = r_real_rank(f_model, ranks[at]);
            bool all = key->id % 3 == 0;
            if (key->own_recv && !HS_OK(stepaf_key_set_recv(f_job->ctx, key->id, buffers[p][i],
                                                            slice_bytes(key) * (size_t)n,
                                                            all ? NULL : ranks, all ? 0 : n)))
                return false;
        }
    return true;
}

bool f_buffers_prepare(struct hs_job *job, const struct r_model *model, int phase)
{
    f_job = job;
    f_model = model;
    lay_out(phase);
    for (int i = 0; i < 2; i++)
        if (!r_arena_make(job, &arenas[phase][i], i == 1))
            return false;
    lay_out(phase);
    return register_buffers(phase);
}

unsigned char *f_buffer_place(const struct r_held *held, int i)
{
    const struct r_key *key = &f_model->plans[held->plan].push[i];
    int ranks[R_ATTN], n = slices(key, ranks);

    for (int at = 0; key->own_recv && at < n; at++)
        if (ranks[at] == held->attn)
            return buffers[held->plan][i] + (size_t)at * slice_bytes(key) +
                   held->op.slot * key->max;
    return NULL;
}

void f_buffers_check(void)
{
    int ranks[R_ATTN];

    for (int p = 0; p < f_model->n_plans; p++)
        for (int i = 0; i < f_model->plans[p].n_push; i++) {
            const struct r_key *key = &f_model->plans[p].push[i];
            if (key->own_recv)
                r_guarded("receive buffer", buffers[p][i],
                          slice_bytes(key) * (size_t)slices(key, ranks));
        }
}

void f_buffers_end(void)
{
    for (int phase = 0; phase < f_model->phases; phase++)
        free(arenas[phase][1].block);
}
