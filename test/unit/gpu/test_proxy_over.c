/* SPDX-License-Identifier: Apache-2.0 */
/* What the host cannot do for a stream whose peers are reached by way of the host: it ends the plan
 * with the host's own error, and no peer is blamed that has done nothing. Ranks are processes; their
 * GPUs are made of memory. */
#include <string.h>
#include <unistd.h>

#include "api/handles.h"
#include "core/batch.h"
#include "core/plan.h"
#include "core/remote_plan.h"
#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"
#include "gpu/proxy.h"
#include "proxy_rank.h"
#include "unit.h"

/* Enter with the rank's proxy; NULL: not there. */
static struct stepaf_proxy *enter_proxy(const struct proxy_rank *rank, struct stepaf_ctx **ctx_p)
{
    if (stepaf_enter_context(rank->ctx, ctx_p))
        return NULL;
    return stepaf_container_of((*ctx_p)->gpu.proxies.next, struct stepaf_proxy, node);
}

static bool names(const char *text, int world_rank)
{
    return stepaf_last_error()->peer_world_rank == world_rank &&
           strstr(stepaf_last_error()->text, "stream plan 0 is over: ") &&
           strstr(stepaf_last_error()->text, text);
}

static int fail_to_start(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;
    stepaf_request_h request;
    struct stepaf_ctx *ctx;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION) {
        struct stepaf_proxy *proxy = enter_proxy(&rank, &ctx);
        RANK_CHECK(boot, proxy != NULL);
        uint32_t usable = proxy->proxy_plan->usable;
        proxy->proxy_plan->usable = 0;
        stepaf_leave(ctx);
        RANK_CHECK(boot,
                   stepaf_start_on_stream(rank.plan, NULL, &rank.stream, &request) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait(request, -1) == STEPAF_ERR_STATE);
        RANK_CHECK(boot, names("waits for a commit", -1));
        RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_ERR_STATE);
        RANK_CHECK(boot, names("waits for a commit", -1));
        RANK_CHECK(boot, stepaf_last_error()->phase == STEPAF_PHASE_START);
        RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS)); /* the stream is released */
        RANK_CHECK(boot, enter_proxy(&rank, &ctx) == proxy);
        proxy->proxy_plan->usable = usable;
        stepaf_leave(ctx);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK); /* all is well again */
    RANK_CHECK(boot, proxy_rank_run(&rank, 0, 4) == 0 && rank.n_wrong == 0);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

/* Something is wrong with the first batch of rank 0, which has arrived: the batch itself, or the
 * space for the first answer. */
static bool spoil_batch(const struct proxy_rank *rank, bool space)
{
    for (int i = 0; i < PROXY_SYNC_MS; i++) {
        struct stepaf_ctx *ctx;
        const struct stepaf_proxy *proxy = enter_proxy(rank, &ctx);
        if (!proxy)
            return false;
        bool has_come = proxy->peers[0].n_in;
        if (has_come && space)
            proxy->peers[0].remote->pull[0].bytes = 1;
        else if (has_come)
            proxy->peers[0].remote->batches[proxy->peers[0].turn].answered = true;
        stepaf_leave(ctx);
        if (has_come)
            return true;
        usleep(1000);
    }
    return false;
}

static int fail_to_answer(const stepaf_boot_t *boot, void *arg)
{
    const struct proxy_job *job = arg;
    struct proxy_rank rank;
    stepaf_request_h request;

    if (proxy_rank_open(&rank, job, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION) {
        stepaf_status_t status =
            rank.host ? stepaf_start(rank.plan, &request) : proxy_rank_begin(&rank, 0);
        RANK_CHECK(boot, status == STEPAF_OK);
    } else {
        RANK_CHECK(boot, proxy_rank_begin(&rank, 0) == STEPAF_OK);
        RANK_CHECK(boot, spoil_batch(&rank, job->host[0]));
        RANK_CHECK(boot, proxy_rank_end(&rank, 0) == STEPAF_OK);
        stepaf_status_t status = STEPAF_OK;
        for (int i = 0; i < PROXY_SYNC_MS && !status; i++) {
            usleep(1000);
            status = stepaf_plan_status(rank.plan);
        }
        RANK_CHECK(boot, status == (job->host[0] ? STEPAF_ERR_PROTOCOL : STEPAF_ERR_STATE));
        RANK_CHECK(boot, job->host[0] ? names("has no space for an answer", 0)
                                      : names("the batch is answered already", -1));
        RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static struct proxy_job planned(void)
{
    struct proxy_job job = proxy_small;

    job.fixed = true;
    job.timeout_us = "5000000";
    return job;
}

static void a_start_that_is_refused_says_why(void)
{
    struct proxy_job job = planned();

    ranks_expect_processes(2, fail_to_start, &job);
}

static void an_answer_that_is_refused_says_why(void)
{
    struct proxy_job job = planned();

    ranks_expect_processes(2, fail_to_answer, &job);
}

static void a_peer_without_space_is_named(void)
{
    struct proxy_job job = planned();

    job.host[0] = true;
    ranks_expect_processes(2, fail_to_answer, &job);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a start that is refused says why", a_start_that_is_refused_says_why},
        {"an answer that is refused says why", an_answer_that_is_refused_says_why},
        {"a peer without space is named", a_peer_without_space_is_named},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
