/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy_rank.h"
#include "plans.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"

enum { PUSHED = 100, PULLED = 200, POISON = 0xa5 };

const struct proxy_job proxy_small = {
    .n_attention = 1,
    .n_ffn = 1,
    .transports = "shm",
    .proxy = "always",
    .depth = 2,
    .n_push = 3,
    .n_pull = 2,
    .push = {112, 4096, 8},
    .pull = {5000, 64},
    .ops = 301,
};

const struct proxy_job proxy_large = {
    .n_attention = 1,
    .n_ffn = 1,
    .transports = "shm",
    .proxy = "always",
    .depth = 3,
    .n_push = 2,
    .n_pull = 1,
    .push = {3 << 20, 100},
    .pull = {2500001},
    .ops = 20,
};

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* Names tensor @a i of operation @a n between two ranks. Pushes are the same for all FFN ranks. */
static uint64_t seed_of(int direction, int attention, int ffn, int i, uint64_t n)
{
    if (direction == STEPAF_PUSH)
        ffn = 99;
    return mix(mix((uint64_t)direction << 48 | (uint64_t)attention << 32 | (uint64_t)ffn << 16 |
                   (uint64_t)i) +
               n);
}

static uint64_t seed_here(const struct proxy_rank *rank, int direction, int peer, int i, uint64_t n)
{
    bool attention = rank->role == STEPAF_ATTENTION;

    return seed_of(direction, attention ? rank->rank : peer, attention ? peer : rank->rank, i, n);
}

static uint32_t size_of(const struct proxy_job *job, int direction, int i, uint64_t seed)
{
    uint32_t most = direction == STEPAF_PUSH ? job->push[i] : job->pull[i];

    if (job->fixed || seed % 3 == 0)
        return most;
    return (uint32_t)(mix(seed) % (most + 1u));
}

/* What a race detector sees of a tensor is copied or compared in blocks: each access is a call
 * there, and so are those to a block, where nobody else is. */
enum { BLOCK_WORDS = 128 };

__attribute__((no_sanitize("thread"))) static void make_block(uint64_t *block, uint64_t seed)
{
    for (unsigned i = 0; i < BLOCK_WORDS; i++) {
        uint64_t x = seed + i + 0x9e3779b97f4a7c15;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
        x = (x ^ x >> 27) * 0x94d049bb133111eb;
        block[i] = x ^ x >> 31;
    }
}

static uint32_t block_of(uint32_t left)
{
    return left < BLOCK_WORDS * sizeof(uint64_t) ? left : BLOCK_WORDS * sizeof(uint64_t);
}

static void fill(uint8_t *data, uint32_t bytes, uint64_t seed)
{
    uint64_t block[BLOCK_WORDS];

    for (uint32_t n; bytes; bytes -= n, data += n, seed += BLOCK_WORDS) {
        n = block_of(bytes);
        make_block(block, seed);
        memcpy(data, block, n);
    }
}

/* Compare, and leave poison. */
static bool look(uint8_t *data, uint32_t bytes, uint64_t seed)
{
    uint64_t block[BLOCK_WORDS];
    bool same = true;

    for (uint32_t n, at = 0; at < bytes; at += n, seed += BLOCK_WORDS) {
        n = block_of(bytes - at);
        make_block(block, seed);
        same = same && !memcmp(data + at, block, n);
    }
    memset(data, POISON, bytes);
    return same;
}

/* ---- on the "GPU" ---- */

/* What goes out with operation @a n; only the bytes if @a tensors is NULL. Returns how many. */
static int make_out(struct proxy_rank *rank, uint64_t n, stepaf_tensor_t *tensors, bool bytes)
{
    const struct proxy_job *job = rank->job;
    bool attention = rank->role == STEPAF_ATTENTION;
    int direction = attention ? STEPAF_PUSH : STEPAF_PULL;
    int each = attention ? job->n_push : job->n_pull, all = attention ? each : each * rank->n_peers;

    for (int at = 0; at < all; at++) {
        int i = at % each;
        uint64_t seed = seed_here(rank, direction, attention ? 0 : at / each, i, n);
        size_t slot = job->one_source ? job->depth : n % job->depth;
        size_t offset = attention ? 0 : slot * job->pull[i];
        stepaf_tensor_t tensor = {(uint64_t)((attention ? PUSHED : PULLED) + i),
                                  rank->source[at] + offset, size_of(job, direction, i, seed)};
        if (bytes)
            fill(tensor.data, (uint32_t)tensor.bytes, seed);
        if (tensors)
            tensors[at] = tensor;
    }
    return all;
}

static void on_fill(void *arg, uint64_t n)
{
    (void)make_out(arg, n, NULL, true);
}

static void on_look(void *arg, uint64_t n)
{
    struct proxy_rank *rank = arg;
    const struct proxy_job *job = rank->job;
    bool attention = rank->role == STEPAF_ATTENTION;
    int direction = attention ? STEPAF_PULL : STEPAF_PUSH;
    int each = attention ? job->n_pull : job->n_push;
    unsigned slot = (unsigned)(n % job->depth);
    const uint32_t *landed = stepaf_plan_bytes(rank->plan, slot);

    for (int at = 0; at < each * rank->n_peers; at++) {
        uint64_t seed = seed_here(rank, direction, at / each, at % each, n);
        uint32_t bytes = size_of(job, direction, at % each, seed);
        stepaf_tensor_info_t info = {.size = sizeof(info)};
        (void)stepaf_plan_tensor(rank->plan, slot, at / each, at % each, &info);
        if (!landed || landed[at] != bytes || !look(info.data, bytes, seed))
            rank->n_wrong++;
    }
    rank->n_looked++;
}

/* As much of it as is not planned; with a graph that is replayed nothing can be told. */
static const stepaf_tensor_t *sizes_of(struct proxy_rank *rank, unsigned n,
                                       stepaf_tensor_t *tensors, int *n_p)
{
    *n_p = make_out(rank, n, tensors, false);
    return rank->job->fixed && !rank->job->one_source ? NULL : tensors;
}

static stepaf_status_t begin(struct proxy_rank *rank, const stepaf_start_params_t *params)
{
    if (rank->role == STEPAF_FFN)
        return stepaf_recv_on_stream(rank->plan, &rank->stream);
    return stepaf_start_on_stream(rank->plan, params->push ? params : NULL, &rank->stream, NULL);
}

stepaf_status_t proxy_rank_begin(struct proxy_rank *rank, unsigned n)
{
    stepaf_tensor_t tensors[PROXY_PEERS * PROXY_TENSORS];
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_PUSH};
    stepaf_status_t status;

    if (rank->role == STEPAF_ATTENTION) {
        params.push = sizes_of(rank, n, tensors, &params.n_push);
        cpu_queue_call(&rank->stream, on_fill, rank, n);
    }
    status = begin(rank, &params);
    for (int i = 0; i < PROXY_SYNC_MS && status == STEPAF_ERR_WOULD_BLOCK; i++) {
        rank->n_full++; /* its stream has no room for more */
        usleep(1000);
        status = begin(rank, &params);
    }
    return status;
}

stepaf_status_t proxy_rank_end(struct proxy_rank *rank, unsigned n)
{
    stepaf_tensor_t tensors[PROXY_PEERS * PROXY_TENSORS];
    int n_tensors;

    if (rank->role == STEPAF_ATTENTION) {
        stepaf_status_t status = stepaf_wait_on_stream(rank->plan, &rank->stream);
        cpu_queue_call(&rank->stream, on_look, rank, n);
        return status;
    }
    const stepaf_tensor_t *given = sizes_of(rank, n, tensors, &n_tensors);
    cpu_queue_call(&rank->stream, on_look, rank, n);
    cpu_queue_call(&rank->stream, on_fill, rank, n);
    return stepaf_respond_on_stream(rank->plan, given, &rank->stream);
}

/* Bursts of as many operations as there are slots; plans in host memory do one after the other. */
static int run_streams(struct proxy_rank *rank, unsigned from, unsigned to)
{
    const stepaf_boot_t *boot = rank->boot;
    unsigned depth = rank->job->host[0] ? 1 : rank->job->depth;

    for (unsigned n = from; n < to; n += depth) {
        unsigned end = n + depth < to ? n + depth : to;
        for (unsigned k = n; k < end; k++)
            RANK_CHECK(boot, proxy_rank_begin(rank, k) == STEPAF_OK);
        for (unsigned k = n; k < end; k++)
            RANK_CHECK(boot, proxy_rank_end(rank, k) == STEPAF_OK);
    }
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    RANK_CHECK(boot, stepaf_plan_status(rank->plan) == STEPAF_OK);
    return 0;
}

int proxy_rank_replay(struct proxy_rank *rank)
{
    const stepaf_boot_t *boot = rank->boot;
    unsigned depth = rank->job->depth;

    cpu_queue_record();
    for (unsigned n = 0; n < depth; n++) {
        RANK_CHECK(boot, proxy_rank_begin(rank, n) == STEPAF_OK);
        RANK_CHECK(boot, proxy_rank_end(rank, n) == STEPAF_OK);
    }
    cpu_queue_replay(rank->job->replays, depth);
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    RANK_CHECK(boot, stepaf_plan_status(rank->plan) == STEPAF_OK);
    return 0;
}

/* ---- in host memory ---- */

static int start_host(struct proxy_rank *rank, unsigned n)
{
    const struct proxy_job *job = rank->job;
    stepaf_tensor_t push[PROXY_TENSORS];
    stepaf_start_params_t params = {.field_mask = STEPAF_START_PARAM_ALL,
                                    .flags = STEPAF_START_WAIT,
                                    .timeout_us = STEPAF_TIMEOUT_DEFAULT,
                                    .push = push,
                                    .n_push = make_out(rank, n, push, true)};
    stepaf_request_h request;

    RANK_CHECK(rank->boot, stepaf_start_with(rank->plan, &params, &request) == STEPAF_OK);
    RANK_CHECK(rank->boot, stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK);
    for (int at = 0; at < job->n_pull * rank->n_peers; at++) {
        uint64_t seed = seed_here(rank, STEPAF_PULL, at / job->n_pull, at % job->n_pull, n);
        uint32_t bytes = size_of(job, STEPAF_PULL, at % job->n_pull, seed);
        stepaf_tensor_info_t info = {.size = sizeof(info)};
        RANK_CHECK(rank->boot, stepaf_request_tensor(request, at, &info) == STEPAF_OK);
        if (info.bytes != bytes || !look(info.data, bytes, seed))
            rank->n_wrong++;
    }
    rank->n_looked++;
    return 0;
}

static int look_batch(struct proxy_rank *rank, stepaf_batch_h batch, int peer, unsigned n)
{
    for (int i = 0; i < rank->job->n_push; i++) {
        uint64_t seed = seed_here(rank, STEPAF_PUSH, peer, i, n);
        uint32_t bytes = size_of(rank->job, STEPAF_PUSH, i, seed);
        stepaf_tensor_info_t info = {.size = sizeof(info)};
        RANK_CHECK(rank->boot, stepaf_batch_tensor(batch, i, &info) == STEPAF_OK);
        if (info.bytes != bytes || !look(info.data, bytes, seed))
            rank->n_wrong++;
    }
    return 0;
}

static int serve_host(struct proxy_rank *rank, unsigned n)
{
    stepaf_tensor_t pull[PROXY_PEERS * PROXY_TENSORS];
    stepaf_batch_h batches[PROXY_PEERS];
    stepaf_request_h request;
    int n_batches;

    RANK_CHECK(rank->boot, stepaf_recv(rank->ctx, STEPAF_FROM_EACH, 0, STEPAF_TIMEOUT_DEFAULT,
                                       batches, PROXY_PEERS, &n_batches) == STEPAF_OK);
    (void)make_out(rank, n, pull, true);
    for (int p = 0; p < n_batches; p++) {
        if (look_batch(rank, batches[p], p, n))
            return 1;
        RANK_CHECK(rank->boot,
                   stepaf_respond(batches[p], &pull[p * rank->job->n_pull], rank->job->n_pull,
                                  STEPAF_RESPOND_RELEASE, &request) == STEPAF_OK);
        RANK_CHECK(rank->boot, stepaf_wait(request, STEPAF_TIMEOUT_DEFAULT) == STEPAF_OK);
    }
    rank->n_looked++;
    return 0;
}

int proxy_rank_run(struct proxy_rank *rank, unsigned from, unsigned to)
{
    int failed = 0;

    if (!rank->host)
        return run_streams(rank, from, to);
    for (unsigned n = from; n < to && !failed; n++)
        failed = rank->role == STEPAF_ATTENTION ? start_host(rank, n) : serve_host(rank, n);
    return failed;
}

/* ---- set-up ---- */

static stepaf_mem_kind_t kind_of(const struct proxy_rank *rank)
{
    return rank->host || rank->job->in_host[rank->role == STEPAF_FFN] ? STEPAF_MEM_HOST
                                                                      : STEPAF_MEM_CUDA;
}

static int declare(struct proxy_rank *rank, int direction, int i)
{
    const struct proxy_job *job = rank->job;
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                                  .depth = job->depth,
                                  .mem_kind = kind_of(rank)};
    uint64_t key = (uint64_t)(direction == STEPAF_PUSH ? PUSHED : PULLED) + (uint64_t)i;

    RANK_CHECK(rank->boot,
               stepaf_key_declare(rank->ctx, key, (stepaf_direction_t)direction,
                                  direction == STEPAF_PUSH ? job->push[i] : job->pull[i],
                                  &params) == STEPAF_OK);
    return 0;
}

static int bring(struct proxy_rank *rank, size_t bytes, stepaf_mem_kind_t kind, uint8_t **ptr_p)
{
    RANK_CHECK(rank->boot, stepaf_alloc(rank->ctx, bytes, kind, (void **)ptr_p) == STEPAF_OK);
    return 0;
}

static stepaf_mem_kind_t kind_of_source(const struct proxy_rank *rank, int i)
{
    return rank->job->host_source[rank->role == STEPAF_FFN] == i + 1 ? STEPAF_MEM_HOST
                                                                     : kind_of(rank);
}

int proxy_rank_plan(struct proxy_rank *rank)
{
    const struct proxy_job *job = rank->job;
    bool attention = rank->role == STEPAF_ATTENTION;
    int n_pull = rank->n_peers * job->n_pull, failed = 0;
    stepaf_tensor_t push[PROXY_TENSORS], pull[PROXY_PEERS * PROXY_TENSORS];

    for (int i = 0; i < job->n_push && !failed; i++) {
        push[i] = (stepaf_tensor_t){.key = (uint64_t)(PUSHED + i)};
        if (attention)
            failed = bring(rank, job->push[i], kind_of_source(rank, i), &rank->source[i]);
        if (attention)
            push[i] = (stepaf_tensor_t){push[i].key, rank->source[i], job->push[i]};
    }
    for (int at = 0; at < n_pull && !failed; at++) {
        int i = at % job->n_pull;
        uint8_t **memory = attention ? &rank->target[at] : &rank->source[at];
        failed = bring(rank, (size_t)job->pull[i] * (job->depth + job->one_source),
                       attention ? kind_of(rank) : kind_of_source(rank, i), memory);
        pull[at] = (stepaf_tensor_t){(uint64_t)(PULLED + i), *memory, job->pull[i]};
    }
    if (failed || (rank->host && !attention))
        return failed;
    RANK_CHECK(rank->boot, plan_create(rank->ctx, push, job->n_push, pull, n_pull,
                                       rank->host ? 0 : STEPAF_PLAN_STREAM | job->flags,
                                       &rank->plan) == STEPAF_OK);
    return 0;
}

int proxy_rank_declare(struct proxy_rank *rank)
{
    int failed = 0;

    for (int i = 0; i < rank->job->n_push && !failed; i++)
        failed = declare(rank, STEPAF_PUSH, i);
    for (int i = 0; i < rank->job->n_pull && !failed; i++)
        failed = declare(rank, STEPAF_PULL, i);
    return failed ? failed : proxy_rank_plan(rank);
}

int proxy_rank_withdraw(struct proxy_rank *rank)
{
    const struct proxy_job *job = rank->job;

    for (int i = 0; i < job->n_push + job->n_pull; i++) {
        uint64_t key = (uint64_t)(i < job->n_push ? PUSHED + i : PULLED + i - job->n_push);
        if (rank->plan && i == 0) {
            RANK_CHECK(rank->boot, stepaf_key_withdraw(rank->ctx, key) == STEPAF_ERR_STATE);
            RANK_CHECK(rank->boot, stepaf_plan_destroy(rank->plan) == STEPAF_OK);
            rank->plan = NULL;
        }
        RANK_CHECK(rank->boot, stepaf_key_withdraw(rank->ctx, key) == STEPAF_OK);
    }
    return 0;
}

static void set(const char *name, const char *value)
{
    if (value)
        (void)setenv(name, value, 1);
    else
        (void)unsetenv(name);
}

int proxy_rank_open(struct proxy_rank *rank, const struct proxy_job *job, const stepaf_boot_t *boot)
{
    bool attention = boot->rank < job->n_attention;
    stepaf_params_t params = {.field_mask = STEPAF_PARAM_ROLE,
                              .role = attention ? STEPAF_ATTENTION : STEPAF_FFN};
    stepaf_boot_t own = *boot;

    own.close = NULL; /* whoever has attached it ends it */
    *rank = (struct proxy_rank){.job = job,
                                .boot = boot,
                                .role = params.role,
                                .host = job->host[!attention],
                                .rank = attention ? boot->rank : boot->rank - job->n_attention,
                                .n_peers = attention ? job->n_ffn : job->n_attention};
    set("STEPAF_TRANSPORTS", job->transports);
    set("STEPAF_CUDA_PROXY", rank->host ? "auto" : job->proxy);
    set("STEPAF_CUDA_ENGINE", job->engine);
    set("STEPAF_CUDA_MAILBOX", job->mailbox[!attention]);
    set("STEPAF_STREAM_TIMEOUT_US", job->timeout_us);
    set("STEPAF_PROGRESS", rank->host ? "inline" : job->progress ? job->progress : "thread");
    cpu_device_begin();
    cpu_device.runs = true;
    if (job->rdma)
        cpu_device.rdma.no_peermem[0] = '\0';
    cpu_device.rdma.flush = job->flushes;
    cpu_device.cut = job->cut[!attention];
    cpu_queue_begin();
    RANK_CHECK(boot, stepaf_init(&own, &params, &rank->ctx) == STEPAF_OK);
    return proxy_rank_declare(rank);
}

void proxy_rank_close(struct proxy_rank *rank)
{
    (void)cpu_queue_sync(PROXY_SYNC_MS);
    stepaf_finalize(rank->ctx); /* until then the library's thread may use a stream */
    cpu_queue_end();
    cpu_device_end();
}
