/* SPDX-License-Identifier: Apache-2.0 */
/* An attention rank does over RDMA what it may not, at one of several FFN ranks.
 *
 *   --way key     it writes with a key that is not the memory's
 *   --way beyond  it writes across the end of the memory that its key is of
 *   --way stale   it and the FFN rank notify each other of operations of an earlier epoch
 *
 * The device at the other end refuses what is written: the writer learns whom and why, the other
 * end loses this peer and no byte, and both go on with all others. What is stale is dropped and
 * counted, and nobody is lost.
 *
 * All this reaches into the library, so the program forks its ranks, always. TEST_ENDS are devices,
 * with blanks between, that ranks use by turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/handles.h"
#include "fixture.h"
#include "transport/verbs/verbs.h"

enum { PLAN, SLICES, PLANS, BYTES = 6000, ROUNDS = 40, TRESPASSER = 1, VICTIM = 0, NOTICE_S = 10 };

/* What the trespasser's last good operation has brought to the victim. */
static const unsigned char *landed;
static unsigned char copy[BYTES];

static bool is_trespasser(const struct hs_job *job)
{
    return job->role == STEPAF_ATTENTION && job->index == TRESPASSER;
}

static bool is_victim(const struct hs_job *job)
{
    return job->role == STEPAF_FFN && job->index == VICTIM;
}

/* A device for this rank; false: there is none at all. */
static bool choose_device(int rank)
{
    char *ends = getenv("TEST_ENDS"), *at = NULL, *end;
    struct stepaf_env env = {.net_devices = (char *)""};
    char reason[STEPAF_REASON_MAX];

    if (!stepaf_verbs_ops.probe(&env, reason)) {
        hs_skip("%s", reason);
        return false;
    }
    ends = ends ? strdup(ends) : NULL;
    end = ends ? strtok_r(ends, " ", &at) : NULL;
    for (int i = 0; i < rank % 2 && end; i++)
        end = strtok_r(NULL, " ", &at);
    if (end)
        setenv("STEPAF_NET_DEVICES", end, 1);
    setenv("STEPAF_TRANSPORTS", "verbs", 1);
    free(ends);
    return true;
}

static stepaf_counters_t counters_of(struct hs_job *job)
{
    stepaf_counters_t counters = {.size = sizeof(counters)};

    HS_OK(stepaf_counters_query(job->ctx, &counters));
    return counters;
}

/* The first operation of both attention ranks; the victim notes where the trespasser's tensor
 * is. */
static bool serve_first(struct hs_job *job)
{
    for (int i = 0; i < job->attn; i++) {
        stepaf_batch_h batch = NULL;
        stepaf_batch_info_t info = {.size = sizeof(info)};
        stepaf_tensor_info_t tensor = {.size = sizeof(tensor)};
        int n = 0;
        if (!HS_OK(
                stepaf_recv(job->ctx, STEPAF_FROM_ANY, 0, STEPAF_TIMEOUT_DEFAULT, &batch, 1, &n)) ||
            !fx_look(job, batch) || !HS_OK(stepaf_batch_query(batch, &info)) ||
            !HS_OK(stepaf_batch_tensor(batch, 0, &tensor)))
            return false;
        if (info.attention_rank == TRESPASSER) {
            landed = tensor.data;
            memcpy(copy, tensor.data, sizeof(copy));
        }
        if (!HS_OK(fx_answer(job, batch, STEPAF_RESPOND_RELEASE)))
            return false;
    }
    return true;
}

/* Have all that goes to the victim go to where it may not. */
static bool spoil(struct hs_job *job, bool beyond)
{
    struct stepaf_ctx *ctx;

    if (!HS_OK(stepaf_enter_context(job->ctx, &ctx)))
        return false;
    const struct stepaf_peer *peer = &ctx->peers[VICTIM];
    bool good =
        HS_TRUE(peer->link->ops->post == stepaf_verbs_ops.post) && HS_INT(peer->n_rmems, >, 0);
    for (uint32_t i = 0; i < peer->n_rmems; i++) {
        struct stepaf_verbs_rmem *rmem = (struct stepaf_verbs_rmem *)peer->rmems[i];
        if (beyond)
            rmem->address += rmem->base.bytes - BYTES / 2;
        else
            rmem->key[0] ^= 0x55;
    }
    stepaf_leave(ctx);
    return good;
}

/* The last error names the victim and says why. */
static void expect_named(void)
{
    const stepaf_error_t *error = stepaf_last_error();

    HS_INT(error->peer_role, ==, STEPAF_FFN);
    HS_INT(error->peer_rank, ==, VICTIM);
    if (strstr(error->text, "remote access error") == NULL ||
        strstr(error->text, "queue pair") == NULL)
        HS_FAILED("nothing of a remote access error in \"%s\"", error->text);
}

static void trespass(struct hs_job *job, struct fx_plan *plans, bool beyond)
{
    stepaf_request_h request = NULL;
    int64_t deadline = hs_now_ns() + NOTICE_S * 1000000000LL * hs_slow();

    if (!spoil(job, beyond) || !HS_OK(fx_start(&plans[PLAN], STEPAF_START_WAIT, &request)))
        return;
    if (HS_REFUSED(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT), STEPAF_ERR_PEER_LOST))
        expect_named();
    for (int f = 0; f < job->ffn; f++) {
        while (stepaf_request_peer(request, f) == STEPAF_INPROGRESS && hs_now_ns() < deadline)
            stepaf_progress(job->ctx);
        HS_STATUS(stepaf_request_peer(request, f), f == VICTIM ? STEPAF_ERR_PEER_LOST : STEPAF_OK);
        if (f != VICTIM)
            fx_verify(&plans[PLAN], plans[PLAN].next - 1, f);
    }
    if (HS_REFUSED(fx_start(&plans[PLAN], 0, &request), STEPAF_ERR_PEER_LOST))
        expect_named();
    plans[SLICES].skip = VICTIM;
    for (int i = 0; i < ROUNDS && fx_exchange(&plans[SLICES]); i++)
        ;
    HS_INT(counters_of(job).peers_lost, ==, 1);
}

/* Serve those that are left; then the loss has been noticed, and no byte has changed. */
static void suffer(struct hs_job *job)
{
    int64_t deadline = hs_now_ns() + NOTICE_S * 1000000000LL * hs_slow();

    if (!fx_serve(job, ROUNDS))
        return;
    while (counters_of(job).peers_lost == 0 && hs_now_ns() < deadline && !hs_failed()) {
        HS_OK(stepaf_progress(job->ctx));
        hs_sleep_us(1000);
    }
    HS_INT(counters_of(job).peers_lost, ==, 1);
    HS_INT(counters_of(job).batches_received, ==, job->attn + ROUNDS);
    if (HS_TRUE(landed != NULL))
        HS_TRUE(memcmp(landed, copy, sizeof(copy)) == 0);
}

static void refused(struct hs_job *job, struct fx_plan *plans, bool beyond)
{
    if (is_trespasser(job))
        trespass(job, plans, beyond);
    else if (is_victim(job))
        suffer(job);
    else if (job->role == STEPAF_FFN)
        fx_serve(job, ROUNDS + 1 + ROUNDS);
    for (int i = 0; i < ROUNDS && job->role == STEPAF_ATTENTION && !is_trespasser(job); i++)
        if (!fx_exchange(&plans[PLAN]))
            break;
    hs_sync(job);
    HS_INT(counters_of(job).peers_lost, ==, is_trespasser(job) || is_victim(job));
}

/* Tell a peer what would be right but for the epoch. */
static void tell_stale(struct hs_job *job, int peer, enum stepaf_msg_type type, uint32_t sequence)
{
    struct stepaf_post post = {.is_short = true}, *one = &post;
    struct stepaf_ctx *ctx;

    if (!HS_OK(stepaf_enter_context(job->ctx, &ctx)))
        return;
    post.link = ctx->peers[peer].link;
    stepaf_msg_head(&post.msg, type, 0, ctx->epoch - 1, 0, 0, 0);
    post.msg.seq = sequence;
    HS_TRUE(stepaf_msg_to_imm(&post.msg, &post.imm));
    post.link->ops->post(&one, 1);
    HS_INT(post.state, ==, STEPAF_POST_SENT);
    stepaf_leave(ctx);
}

/* The victim's own is for attention rank 0, which is ahead of it in nothing. */
static void stale(struct hs_job *job, struct fx_plan *plans)
{
    bool is_told = is_victim(job) || (job->role == STEPAF_ATTENTION && job->index == 0);

    if (!fx_declare(job, PLANS, BYTES, 1) || !HS_OK(stepaf_commit(job->ctx)))
        return;
    if (is_trespasser(job))
        tell_stale(job, VICTIM, STEPAF_MSG_START, plans[PLAN].next);
    if (is_victim(job))
        tell_stale(job, 0, STEPAF_MSG_RESPONSE, 0);
    for (int i = 0; i < ROUNDS && job->role == STEPAF_ATTENTION; i++)
        if (!fx_exchange(&plans[PLAN]))
            break;
    if (job->role == STEPAF_FFN)
        fx_serve(job, ROUNDS * job->attn);
    hs_sync(job);
    HS_INT(counters_of(job).dropped_stale, ==, is_told);
    HS_INT(counters_of(job).dropped_malformed, ==, 0);
    HS_INT(counters_of(job).peers_lost, ==, 0);
}

static void body(struct hs_job *job)
{
    const char *way = hs_option_text(job, "--way", "key");
    struct fx_plan plans[PLANS];

    if (!choose_device(job->rank) || !hs_open(job))
        return;
    for (int id = 0; id < PLANS; id++)
        if (!fx_declare(job, id, BYTES, 1))
            return;
    if (job->role == STEPAF_ATTENTION &&
        (!fx_plan_make(job, PLAN, BYTES, 1, FX_BOTH, &plans[PLAN]) ||
         !fx_plan_make(job, SLICES, BYTES, 1, FX_SCATTER, &plans[SLICES])))
        return;
    if (job->role == STEPAF_FFN && !fx_serve_open(job, BYTES))
        return;
    if (!HS_OK(stepaf_commit(job->ctx)))
        return;
    if (!(job->role == STEPAF_ATTENTION ? fx_exchange(&plans[PLAN]) : serve_first(job)) ||
        !hs_sync(job))
        return;
    if (strcmp(way, "stale") == 0)
        stale(job, plans);
    else
        refused(job, plans, strcmp(way, "beyond") == 0);
    hs_sync(job);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {
        .name = "trespass", .options = "--way", .limit_s = 60, .n_boots = 1, .body = body};
    return hs_main(argc, argv, &test);
}
