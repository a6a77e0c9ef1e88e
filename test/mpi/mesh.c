/* SPDX-License-Identifier: Apache-2.0 */
/* A mesh of lanes, seen from the outside: what is refused, what ranks are called, what it costs,
 * and that a lane has nothing to do with another. Four attention and four FFN ranks, two lanes. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 2, BYTES = 640, DEPTH = 2, OWN_KEY = 500, BOOTS = 3 };

static const char split[] = "attn=4,ffn=4";

static void set(const char *mesh, const char *lanes)
{
    setenv("STEPAF_MESH", mesh, 1);
    setenv("STEPAF_LANES", lanes, 1);
}

static void refuse(struct hs_job *job, stepaf_status_t want, const char *words)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_SPLIT, .split = split};
    stepaf_context_h ctx = NULL;

    if (!HS_REFUSED(hs_init(job, 0, &params, &ctx), want))
        stepaf_finalize(ctx);
    else if (strstr(stepaf_last_error()->text, words) == NULL)
        HS_FAILED("\"%s\" is not in: %s", words, stepaf_last_error()->text);
    hs_pause(job);
}

static void refusals(struct hs_job *job)
{
    bool last = job->rank == job->size - 1;

    set("lane", "5");
    refuse(job, STEPAF_ERR_SETTING, "STEPAF_LANES=5: lanes 4 to 4 have no");
    set("lane", "16777216");
    refuse(job, STEPAF_ERR_SETTING, "at most 4 lanes have both");
    set("full", "2");
    refuse(job, STEPAF_ERR_SETTING, "requires STEPAF_MESH=lane");
    set("lane", last ? "2" : "4");
    refuse(job, STEPAF_ERR_MISMATCH, "STEPAF_LANES differs: \"4\" at rank 0, \"2\" at rank 7");
    set(last ? "full" : "lane", "0");
    refuse(job, STEPAF_ERR_MISMATCH, "STEPAF_MESH differs: \"lane\" at rank 0, \"full\" at rank 7");
    setenv("STEPAF_MESH", "ring", 1);
    refuse(job, STEPAF_ERR_SETTING, "full|lane");
}

/* Open by one bootstrap, or give the last context back. */
static bool reopen(struct hs_job *job, int boot)
{
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_SPLIT, .split = split};

    stepaf_finalize(job->ctx);
    job->ctx = NULL;
    if (!HS_OK(hs_init(job, boot, &params, &job->ctx)))
        return false;
    job->role = stepaf_role(job->ctx);
    job->attn = job->ffn = job->size / 2;
    job->index =
        stepaf_rank(job->ctx, job->role == STEPAF_FFN ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION);
    job->peers = stepaf_n_peers(job->ctx);
    return true;
}

static bool exchange(struct hs_job *job, struct fx_plan *plan)
{
    if (job->role == STEPAF_FFN)
        return fx_serve(job, job->peers);
    return fx_exchange(plan);
}

static bool open_and_exchange(struct hs_job *job, int boot, struct fx_plan *plan,
                              stepaf_memory_use_t *use_p)
{
    return reopen(job, boot) && fx_open(job, 1, BYTES, DEPTH, FX_BOTH, plan) &&
           exchange(job, plan) && HS_OK(stepaf_memory_query(job->ctx, use_p)) && hs_sync(job);
}

/* Half the peers, half of all that there is for each. */
static void memory(const stepaf_memory_use_t *full, const stepaf_memory_use_t *lane)
{
    HS_INT(full->peers, ==, 4);
    HS_INT(lane->peers, ==, 2);
    HS_INT(lane->per_key * 2, ==, full->per_key);
    HS_INT(lane->key_peers * 2, ==, full->key_peers);
    HS_INT(lane->receive * 2, ==, full->receive);
    HS_INT(lane->bounce, <=, full->bounce); /* TCP's is one piece for all links */
    HS_INT(lane->fixed, ==, full->fixed);
    HS_INT(lane->fixed + lane->declared + lane->peers * lane->per_peer + lane->per_key, <,
           full->fixed + full->declared + full->peers * full->per_peer + full->per_key);
}

/* Records and timelines name ranks, not indices. */
static void traces(struct hs_job *job)
{
    stepaf_trace_record_t records[64];
    int seen[4] = {0};
    size_t n = 0;

    HS_OK(stepaf_trace_read(job->ctx, records, sizeof(*records), 64, &n));
    for (size_t i = 0; i < n; i++) {
        if (records[i].peer < 0)
            continue;
        if (!HS_INT(records[i].peer, <, 4) ||
            !HS_INT(records[i].peer % LANES, ==, job->index % LANES))
            return;
        seen[records[i].peer]++;
    }
    for (int p = 0; p < job->peers; p++)
        HS_INT(seen[stepaf_peer_rank(job->ctx, p)], >, 0);
}

static void attention_calls(struct hs_job *job, struct fx_plan *plan)
{
    int mine = job->index % LANES, other = (mine + 1) % LANES;
    stepaf_tensor_t pulls[3];
    stepaf_timeline_t timeline = {.size = sizeof(timeline)};
    stepaf_request_h request;
    stepaf_plan_h handle;

    if (!HS_OK(fx_start(plan, 0, &request)) || !HS_OK(stepaf_wait(request, -1)))
        return;
    for (int f = 0; f < 4; f++) {
        bool is_peer = f % LANES == mine;
        HS_STATUS(stepaf_request_peer(request, f), is_peer ? STEPAF_OK : STEPAF_ERR_INVALID);
        HS_STATUS(stepaf_timeline_query(request, f, &timeline),
                  is_peer ? STEPAF_OK : STEPAF_ERR_INVALID);
    }
    HS_REFUSED(stepaf_request_peer(request, other), STEPAF_ERR_INVALID);
    for (int i = 0; i < 3; i++)
        pulls[i] = (stepaf_tensor_t){FX_PULL_KEY, plan->target, BYTES};
    HS_REFUSED(stepaf_plan_create(job->ctx, NULL, 0, pulls, 3, 0, &handle), STEPAF_ERR_PULLS);
    if (!HS_TRUE(strstr(stepaf_last_error()->text, "2 FFN ranks of the mesh") != NULL))
        HS_FAILED("%s", stepaf_last_error()->text);
}

static void ffn_calls(struct hs_job *job)
{
    int mine = job->index % LANES, other = (mine + 1) % LANES;
    int ranks[] = {mine, other + LANES}, good[] = {mine + LANES};
    stepaf_batch_h batches[4];
    void *buffer;
    int n = 0;

    HS_OK(stepaf_key_declare(job->ctx, OWN_KEY, STEPAF_PUSH, 64, NULL));
    HS_OK(stepaf_alloc(job->ctx, 256, STEPAF_MEM_HOST, &buffer));
    HS_REFUSED(stepaf_key_set_recv(job->ctx, OWN_KEY, buffer, 128, ranks, 2), STEPAF_ERR_INVALID);
    HS_TRUE(strstr(stepaf_last_error()->text, "of the mesh") != NULL);
    ranks[1] = 4;
    HS_REFUSED(stepaf_key_set_recv(job->ctx, OWN_KEY, buffer, 128, ranks, 2), STEPAF_ERR_INVALID);
    HS_OK(stepaf_key_set_recv(job->ctx, OWN_KEY, buffer, 64, good, 1));
    /* One of each: two, in the order of their ranks. */
    HS_REFUSED(stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, 0, batches, 1, &n), STEPAF_ERR_INVALID);
    if (!HS_OK(stepaf_recv(job->ctx, STEPAF_FROM_EACH, 0, -1, batches, 2, &n)) || !HS_INT(n, ==, 2))
        return;
    for (int i = 0; i < n; i++) {
        stepaf_batch_info_t info = {.size = sizeof(info)};
        HS_OK(stepaf_batch_query(batches[i], &info));
        HS_INT(info.attention_rank, ==, mine + i * LANES);
        HS_OK(fx_answer(job, batches[i], STEPAF_RESPOND_RELEASE));
    }
}

/* Keys are judged by lane: what one lane pushes, FFN ranks of another need not know. Here lane 0
 * declares it on both sides, lane 1 nowhere; then lane 1 pushes it, and nobody receives it. */
static void keys(struct hs_job *job)
{
    bool first = job->index % LANES == 0;

    if (first)
        HS_OK(stepaf_key_declare(job->ctx, OWN_KEY + 1, STEPAF_PUSH, 64, NULL));
    if (job->role == STEPAF_ATTENTION) /* as their FFN ranks have */
        HS_OK(stepaf_key_declare(job->ctx, OWN_KEY, STEPAF_PUSH, 64, NULL));
    HS_OK(stepaf_commit(job->ctx));
    if (!first && job->role == STEPAF_ATTENTION)
        HS_OK(stepaf_key_declare(job->ctx, OWN_KEY + 1, STEPAF_PUSH, 64, NULL));
    HS_REFUSED(stepaf_commit(job->ctx), STEPAF_ERR_KEY);
    HS_TRUE(strstr(stepaf_last_error()->text, "not declared by FFN world rank 5") != NULL);
    if (!first && job->role == STEPAF_FFN)
        HS_OK(stepaf_key_declare(job->ctx, OWN_KEY + 1, STEPAF_PUSH, 64, NULL));
    HS_OK(stepaf_commit(job->ctx));
}

/* FFN rank 2 leaves: only attention ranks 0 and 2 need it. */
static void a_loss_stays_in_its_lane(struct hs_job *job, struct fx_plan *plan)
{
    stepaf_counters_t counters = {.size = sizeof(counters)};
    stepaf_request_h request;

    if (job->role == STEPAF_FFN && job->index == 2) {
        stepaf_finalize(job->ctx);
        job->ctx = NULL;
    }
    if (!hs_pause(job) || job->ctx == NULL)
        return;
    if (job->index % LANES == 1) {
        exchange(job, plan);
        HS_OK(stepaf_counters_query(job->ctx, &counters));
        HS_INT(counters.peers_lost, ==, 0);
    } else if (job->role == STEPAF_ATTENTION) {
        for (int turns = 0; turns < 1000; turns++)
            HS_OK(stepaf_progress(job->ctx));
        HS_REFUSED(fx_start(plan, 0, &request), STEPAF_ERR_PEER_LOST);
        HS_INT(stepaf_last_error()->peer_rank, ==, 2);
        HS_INT(stepaf_last_error()->peer_world_rank, ==, 6);
    }
}

static void body(struct hs_job *job)
{
    stepaf_memory_use_t full = {.size = sizeof(full)}, lane = {.size = sizeof(lane)};
    struct fx_plan plan;

    if (job->size != 8) {
        hs_skip("needs eight ranks");
        return;
    }
    job->fds = hs_count_fds();
    hs_step("refusals");
    refusals(job);
    hs_step("full mesh");
    set("full", "0");
    if (hs_failed() || !open_and_exchange(job, 0, &plan, &full) || !hs_pause(job))
        return;
    hs_step("lanes");
    set("lane", "2");
    if (!open_and_exchange(job, 1, &plan, &lane))
        return;
    memory(&full, &lane);
    traces(job);
    if (job->role == STEPAF_FFN)
        ffn_calls(job);
    else
        attention_calls(job, &plan);
    hs_sync(job);
    keys(job);
    hs_sync(job);
    a_loss_stays_in_its_lane(job, &plan);
    hs_pause(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "mesh", .options = "", .limit_s = 60, .n_boots = BOOTS, .body = body};
    return hs_main(argc, argv, &test);
}
