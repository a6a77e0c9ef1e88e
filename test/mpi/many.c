/* SPDX-License-Identifier: Apache-2.0 */
/* Many ranks, most of them without a core of their own: one operation of each attention rank, then
 * a few rounds; everything within a bounded time, and little memory for each peer. */
#include "fixture.h"

enum { BYTES = 300, PLANS = 2, PEER_BYTES_MAX = 8192, KEY_PEER_BYTES_MAX = 264 };

static void check_memory(struct hs_job *job)
{
    stepaf_memory_use_t use = {.size = sizeof(use)};

    if (!HS_OK(stepaf_memory_query(job->ctx, &use)))
        return;
    HS_INT(use.peers, ==, job->role == STEPAF_FFN ? job->attn : job->ffn);
    HS_INT(use.per_peer, >, 0);
    HS_INT(use.per_peer, <=, PEER_BYTES_MAX);
    if (job->role == STEPAF_ATTENTION)
        HS_INT(use.key_peers, ==, PLANS * 2 * job->ffn);
    if (use.key_peers > 0)
        HS_INT(use.per_key / use.key_peers, <=, KEY_PEER_BYTES_MAX);
}

static void body(struct hs_job *job)
{
    int rounds = (int)hs_option_int(job, "--rounds", 1);
    struct fx_plan plans[PLANS];
    int64_t began = hs_now_ns();

    if (!hs_open(job))
        return;
    if (!fx_open(job, PLANS, BYTES, 1, FX_BOTH, plans))
        return;
    hs_step("exchange");
    if (job->role == STEPAF_FFN)
        fx_serve(job, job->attn * PLANS * rounds);
    for (int i = 0; i < rounds * PLANS && job->role == STEPAF_ATTENTION; i++)
        if (!fx_exchange(&plans[i % PLANS]))
            return;
    check_memory(job);
    HS_INT((hs_now_ns() - began) / 1000000000, <=, 20 * hs_slow());
    hs_sync(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "many", .options = "--rounds", .limit_s = 60, .n_boots = 1, .body = body};
    return hs_main(argc, argv, &test);
}
