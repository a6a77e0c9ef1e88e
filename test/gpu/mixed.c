/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of host and GPU. --attention KIND and --ffn KIND say what ranks of a role have:
 *
 *   c   an ordinary plan in host memory, or batches that are received; bytes made by the CPU
 *   d   the same in GPU memory: the bytes are copied there, and from there
 *   g   a stream plan in GPU memory
 *   h   a stream plan in host memory that the library has allocated; p: the caller's own
 *
 * --ops N, --seed N, --fixed 1 as in echo. --may-lack 1: a commit that is refused as unsupported is a
 * SKIP. */
#include "gpu/exchange.h"

#include <string.h>

enum { MIB = 1 << 20 };

static const struct gx_shape shapes[] = {
    {.depth = 2, .n_push = 3, .push = {84, 8192, 1}, .n_pull = 2, .pull = {64, 70000}},
    {.depth = 3,
     .n_push = 2,
     .push = {917504, 4097},
     .n_pull = 1,
     .pull = {1835008},
     .own_receive = true,
     .skew = 16},
    {.depth = 1, .n_push = 1, .push = {9 * MIB + 3}, .n_pull = 1, .pull = {5 * MIB}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static struct gx_plan plans[SHAPES];
static bool on_host; /* ordinary plans and batches, */
static bool on_gpu;  /* and their tensors are in GPU memory */
static unsigned char scratch[9 * MIB + 8];

/* ---- the CPU's bytes: as kernels.cu makes them ---- */

static uint64_t seed_of(const struct gx_plan *plan, int direction, int peer, int index, uint32_t n)
{
    return hs_mix(gx_place(plan, direction, peer, index) ^ hs_mix(n));
}

static uint64_t word_of(uint64_t seed, uint32_t i)
{
    uint64_t word = hs_mix(seed + i);

    return word % 4 != 0 ? word : UINT64_MAX;
}

static bool fill(unsigned char *data, uint32_t bytes, uint64_t seed)
{
    unsigned char *there = on_gpu ? scratch : data;

    for (uint32_t at = 0; at < bytes; at += 8) {
        uint64_t word = word_of(seed, at / 8);
        memcpy(there + at, &word, bytes - at < 8 ? bytes - at : 8);
    }
    return !on_gpu ||
           (GX_CUDA(cudaMemcpy(data, scratch, bytes, cudaMemcpyHostToDevice)) && gx_settle());
}

static bool look(const struct gx_plan *plan, const unsigned char *data, uint32_t bytes,
                 uint64_t seed)
{
    if (on_gpu && !GX_CUDA(cudaMemcpy(scratch, data, bytes, cudaMemcpyDeviceToHost)))
        return false;
    data = on_gpu ? scratch : data;
    for (uint32_t at = 0; at < bytes; at += 8) {
        uint64_t word = word_of(seed, at / 8);
        if (memcmp(data + at, &word, bytes - at < 8 ? bytes - at : 8) != 0)
            return HS_FAILED("plan %d, operation %u: wrong at byte %u of %u", plan->id,
                             plan->n_seen, at, bytes);
    }
    return true;
}

/* Returns how many tensors; -1: the GPU has not got them. */
static int make_out(struct gx_plan *plan, stepaf_tensor_t *tensors)
{
    bool attention = plan->job->role == STEPAF_ATTENTION;
    int each = attention ? plan->shape.n_push : plan->shape.n_pull;
    int n = gx_out(plan, plan->n_sent, tensors);
    unsigned slot = plan->n_sent % plan->shape.depth;

    for (int at = 0; at < n; at++) {
        int index = at % each, peer = attention ? -1 : at / each;
        tensors[at].data = plan->source[at] + (attention ? 0 : slot * plan->shape.pull[index]);
        if (!fill(tensors[at].data, (uint32_t)tensors[at].bytes,
                  seed_of(plan, attention ? GX_PUSH : GX_PULL, peer, index, plan->n_sent)))
            return -1;
    }
    plan->n_sent++;
    return n;
}

static bool look_at(const struct gx_plan *plan, const stepaf_tensor_info_t *info, int peer,
                    int index)
{
    int direction = plan->job->role == STEPAF_ATTENTION ? GX_PULL : GX_PUSH;
    uint32_t bytes = gx_size(plan, direction, peer, index, plan->n_seen);

    return HS_INT(info->bytes, ==, bytes) &&
           look(plan, info->data, bytes, seed_of(plan, direction, peer, index, plan->n_seen));
}

/* ---- ordinary plans and batches ---- */

static bool push_pull(struct gx_plan *plan)
{
    stepaf_tensor_t push[GX_TENSORS];
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_ALL,
                                    .flags = STEPAF_START_WAIT,
                                    .timeout_us = STEPAF_TIMEOUT_DEFAULT,
                                    .push = push,
                                    .n_push = make_out(plan, push)};
    stepaf_request_h request;
    stepaf_tensor_info_t info = {.size = sizeof(info)};

    if (params.n_push < 0 || !HS_OK(stepaf_start_with(plan->handle, &params, &request)) ||
        !HS_OK(stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT)))
        return false;
    for (int at = 0; at < plan->job->peers * plan->shape.n_pull; at++)
        if (!HS_OK(stepaf_request_tensor(request, at, &info)) ||
            !look_at(plan, &info, at / plan->shape.n_pull, at % plan->shape.n_pull))
            return false;
    plan->n_seen++;
    return true;
}

static bool serve(struct gx_plan *plan)
{
    stepaf_tensor_t pull[GX_PEERS * GX_TENSORS];
    stepaf_request_h requests[GX_PEERS];
    stepaf_batch_h batches[GX_PEERS];
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    int n = 0, n_pull = plan->shape.n_pull;

    if (!HS_OK(stepaf_recv(plan->ctx, STEPAF_FROM_EACH, 0, STEPAF_TIMEOUT_DEFAULT, batches,
                           GX_PEERS, &n)))
        return false;
    if (make_out(plan, pull) < 0)
        return false;
    for (int p = 0; p < n; p++) {
        for (int i = 0; i < plan->shape.n_push; i++)
            if (!HS_OK(stepaf_batch_tensor(batches[p], i, &info)) || !look_at(plan, &info, p, i))
                return false;
        if (!HS_OK(stepaf_respond(batches[p], &pull[p * n_pull], n_pull, STEPAF_RESPOND_RELEASE,
                                  &requests[p])))
            return false;
    }
    for (int p = 0; p < n; p++)
        if (!HS_OK(stepaf_wait(requests[p], STEPAF_TIMEOUT_DEFAULT)))
            return false;
    plan->n_seen++;
    return true;
}

static bool exchange(struct hs_job *job, struct gx_plan *plan)
{
    if (!on_host)
        return gx_exchange(plan, NULL);
    return job->role == STEPAF_ATTENTION ? push_pull(plan) : serve(plan);
}

/* ---- set-up ---- */

static bool make(struct hs_job *job, int i, char kind)
{
    stepaf_tensor_t push[GX_TENSORS], pull[GX_PEERS * GX_TENSORS];
    struct gx_shape shape = shapes[i];
    struct gx_plan *plan = &plans[i];
    int n_pull;

    shape.memory = kind == 'g' || kind == 'd' ? GX_LIBRARY : kind == 'p' ? GX_HEAP : GX_HOST;
    if (!gx_plan_begin(job, job->ctx, i, &shape, plan) || !gx_plan_declare(plan) ||
        !gx_plan_memory(plan))
        return false;
    plan->seed = (uint64_t)hs_option_int(job, "--seed", 1);
    plan->fixed = hs_option_int(job, "--fixed", 0) != 0;
    gx_plan_tensors(plan, push, pull, &n_pull);
    if (on_host && job->role == STEPAF_FFN)
        return true;
    return HS_OK(gx_plan_create(job->ctx, push, shape.n_push, pull, n_pull,
                                on_host ? 0 : STEPAF_PLAN_STREAM, &plan->handle));
}

static bool run(struct hs_job *job, long long ops)
{
    for (int i = 0; i < SHAPES; i++) {
        for (long long n = 0; n < ops; n++) {
            if (!exchange(job, &plans[i]))
                return false;
            if (!on_host && n % 64 == 63 && (!gx_sync(&plans[i]) || hs_hopeless(job)))
                return false;
        }
        if (!on_host)
            gx_verify(&plans[i], (unsigned long long)ops);
    }
    return true;
}

static void body(struct hs_job *job)
{
    long long ops = hs_option_int(job, "--ops", 1000);

    if (!gx_open(job))
        return;
    ops = gx_scaled(job, ops, 10);
    char kind =
        hs_option_text(job, job->role == STEPAF_ATTENTION ? "--attention" : "--ffn", "g")[0];
    on_gpu = kind == 'd';
    on_host = kind == 'c' || on_gpu;
    hs_step("set-up");
    for (int i = 0; i < SHAPES; i++)
        if (!make(job, i, kind))
            return;
    stepaf_status_t status = stepaf_commit(job->ctx);
    if (status == STEPAF_ERR_UNSUPPORTED && hs_option_int(job, "--may-lack", 0)) {
        hs_skip("%s", stepaf_last_error()->text);
        return;
    }
    if (!HS_OK(status))
        return;
    for (int i = 0; i < SHAPES; i++)
        if (!on_host && !gx_plan_ready(&plans[i]))
            return;
    if (!hs_sync(job))
        return;
    hs_step("exchange");
    run(job, ops);
    hs_sync(job);
    for (int i = 0; i < SHAPES; i++)
        gx_plan_end(&plans[i]);
}

int main(int argc, char **argv)
{
    static const struct hs_test test = {.name = "mixed",
                                        .options =
                                            "--attention --ffn --ops --seed --fixed --may-lack",
                                        .limit_s = 120,
                                        .n_boots = 1,
                                        .body = body};

    return hs_main(argc, argv, &test);
}
