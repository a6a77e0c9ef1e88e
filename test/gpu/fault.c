/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are killed, silent or leave, while streams wait for them: no stream waits for ever,
 * and the plan says who it was.
 *
 * --case NAME says what happens, --role attention|ffn to whom (the last rank of it); --timeout-ms is
 * STEPAF_STREAM_TIMEOUT_US, --notice-ms how long a loss may go unnoticed, --delay-us the time until
 * the kill. --any 1: FFN ranks, of one attention rank each, take any. --lanes 1: each attention rank has one FFN rank. --host 1: the host waits, too. --gpus N:
 * skip where there are fewer. */
#include "gpu/fault.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(struct fault *fault);
} cases[] = {
    {"waiting", fault_waiting}, {"load", fault_load},     {"full", fault_full},
    {"graph", fault_graph},     {"silent", fault_silent}, {"finalize", fault_finalize},
};

static const struct gx_shape shapes[FAULT_PLANS] = {
    {.depth = 1, .n_push = 2, .push = {100000, 64}, .n_pull = 1, .pull = {200000}},
    {.depth = 2, .n_push = 1, .push = {9 << 20}, .n_pull = 1, .pull = {100}, .memory = GX_MALLOC},
};

static pthread_t killer;

int fault_victim(const struct fault *fault)
{
    return (fault->role == STEPAF_FFN ? fault->job->ffn : fault->job->attn) - 1;
}

int fault_victim_world(const struct fault *fault)
{
    return stepaf_world_rank(fault->job->ctx,
                             fault->role == STEPAF_FFN ? STEPAF_GROUP_FFN : STEPAF_GROUP_ATTENTION,
                             fault_victim(fault));
}

bool fault_is_victim(const struct fault *fault)
{
    return fault->job->role == fault->role && fault->job->index == fault_victim(fault);
}

bool fault_meets(const struct fault *fault)
{
    return fault->job->role != fault->role &&
           stepaf_peer_index(fault->job->ctx, fault_victim(fault)) >= 0;
}

static void *kill_it(void *arg)
{
    struct fault *fault = arg;

    hs_sleep_us(fault->delay_us);
    hs_signal(fault->job, fault_victim_world(fault), SIGKILL);
    return NULL;
}

/* The one that kills is never the victim: it has the other role. */
static bool is_killer(const struct fault *fault)
{
    return fault->job->role != fault->role && fault->job->index == 0;
}

void fault_kill_later(struct fault *fault)
{
    if (is_killer(fault))
        HS_INT(pthread_create(&killer, NULL, kill_it, fault), ==, 0);
}

void fault_killed(struct fault *fault)
{
    if (is_killer(fault))
        pthread_join(killer, NULL);
}

int64_t fault_kill_time(const struct fault *fault)
{
    return atomic_load(&fault->job->shared->stamp[0]);
}

bool fault_released(cudaStream_t stream, int64_t since_ns, int64_t limit_ms)
{
    int64_t ms;

    if (!GX_CUDA(cudaStreamSynchronize(stream)))
        return false;
    ms = (hs_now_ns() - since_ns) / 1000000;
    return ms <= limit_ms * hs_slow() || HS_FAILED("released after %lld ms", (long long)ms);
}

void fault_told(struct fault *fault, struct gx_plan *plan, stepaf_status_t want, int64_t since_ns)
{
    int64_t deadline = since_ns + fault->notice_ms * 1000000 * hs_slow();
    const stepaf_error_t *error = stepaf_last_error();
    stepaf_request_h request = NULL;
    stepaf_status_t status;

    while ((status = stepaf_plan_status(plan->handle)) == STEPAF_OK && hs_now_ns() < deadline)
        hs_yield();
    HS_REFUSED(status, want);
    HS_INT(error->peer_role, ==, fault->role);
    HS_INT(error->peer_rank, ==, fault_victim(fault));
    HS_INT(error->peer_world_rank, ==, fault_victim_world(fault));
    /* It stays so, and nothing more is enqueued. */
    HS_REFUSED(stepaf_plan_status(plan->handle), want);
    if (fault->job->role == STEPAF_ATTENTION) {
        HS_REFUSED(stepaf_start_on_stream(plan->handle, NULL, plan->stream, &request), want);
        HS_REFUSED(stepaf_start_on_stream(plan->handle, NULL, plan->stream, NULL), want);
        HS_TRUE(request == NULL);
    } else {
        HS_REFUSED(stepaf_recv_on_stream(plan->handle, plan->stream), want);
    }
    HS_INT(cudaStreamQuery(plan->stream), ==, cudaSuccess);
}

bool fault_exchange(struct fault *fault, int plan, int n)
{
    struct gx_plan *it = &fault->plans[plan];

    for (int i = 0; i < n; i++)
        if (!gx_exchange(it, NULL))
            return false;
    it->done += (unsigned)n;
    return gx_verify(it, it->done);
}

static bool open_plans(struct fault *fault)
{
    struct hs_job *job = fault->job;

    for (int i = 0; i < FAULT_PLANS; i++)
        if (!gx_plan_make(job, job->ctx, i, &shapes[i], &fault->plans[i]))
            return false;
    if (!HS_OK(stepaf_commit(job->ctx)))
        return false;
    for (int i = 0; i < FAULT_PLANS; i++)
        if (!gx_plan_ready(&fault->plans[i]))
            return false;
    if (!hs_sync(job))
        return false;
    for (int i = 0; i < FAULT_PLANS; i++)
        if (!fault_exchange(fault, i, 4))
            return false;
    return hs_sync(job);
}

static void body(struct hs_job *job)
{
    const char *name = hs_option_text(job, "--case", "");
    const char *role = hs_option_text(job, "--role", "ffn");
    struct fault fault = {
        .job = job,
        .role = strcmp(role, "ffn") == 0 ? STEPAF_FFN : STEPAF_ATTENTION,
        .lanes = hs_option_int(job, "--lanes", 0) != 0,
        .host = hs_option_int(job, "--host", 0) != 0,
        .timeout_ms = hs_option_int(job, "--timeout-ms", 2000),
        .notice_ms = hs_option_int(job, "--notice-ms", 3500),
        .delay_us = hs_option_int(job, "--delay-us", 50000),
    };
    char timeout_us[32];

    snprintf(timeout_us, sizeof timeout_us, "%" PRId64, fault.timeout_ms * 1000 * hs_slow());
    setenv("STEPAF_STREAM_TIMEOUT_US", timeout_us, 1);
    if (fault.lanes)
        setenv("STEPAF_MESH", "lane", 1);
    if (!gx_open(job))
        return;
    hs_step("set-up");
    if (!open_plans(&fault))
        return;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(cases[i].name, name) == 0) {
            hs_step(cases[i].name);
            cases[i].run(&fault);
            return;
        }
    HS_FAILED("no case \"%s\"", name);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "fault",
                                        .options = "--case --role --lanes --host --timeout-ms "
                                                   "--notice-ms --delay-us --any --gpus",
                                        .limit_s = 60,
                                        .n_boots = 1,
                                        .body = body};
    return hs_main(argc, argv, &test);
}
