/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans whose mailboxes lie in host memory that both ranks have pinned. Ranks are processes,
 * whose GPUs are made of memory; no thread of the library's takes part. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/plan.h"
#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"
#include "fake.h"
#include "gpu/stream.h"
#include "plans.h"
#include "proxy_rank.h"
#include "unit.h"

/* ---- exchanges ---- */

static const struct proxy_job small = {
    .n_attention = 1,
    .n_ffn = 1,
    .transports = "shm",
    .proxy = "auto",
    .mailbox = {"host", "host"},
    .progress = "inline",
    .depth = 2,
    .n_push = 3,
    .n_pull = 2,
    .push = {85, 4096, 8},
    .pull = {70001, 64},
    .ops = 301,
};

/* How many pieces of other processes' GPU memory are mapped. */
static int count_imports(void)
{
    int n = 0;

    for (int i = 0; i < CPU_PIECES; i++)
        n += cpu_device.pieces[i].base && cpu_device.pieces[i].by;
    return n;
}

/* Whether ranks of role @a of are written to by way of the host: where they receive is their
 * business alone, but for those who cannot write there. */
static bool in_host(const struct proxy_job *job, stepaf_role_t of)
{
    const char *setting = job->mailbox[of == STEPAF_FFN];

    return setting ? !strcmp(setting, "host") : job->cut[of != STEPAF_FFN];
}

static int exchange(const stepaf_boot_t *boot, void *arg)
{
    const struct proxy_job *job = arg;
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, job, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    stepaf_role_t others = rank.role == STEPAF_FFN ? STEPAF_ATTENTION : STEPAF_FFN;
    RANK_CHECK(boot, !count_imports() == in_host(job, others));
    unsigned n = job->replays ? job->replays * job->depth : job->ops;
    if (job->replays ? proxy_rank_replay(&rank) : proxy_rank_run(&rank, 0, n))
        return 1;
    RANK_CHECK(boot, rank.n_looked == n);
    RANK_CHECK(boot, rank.n_wrong == 0);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_plan_destroy(rank.plan) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void run(struct proxy_job job)
{
    ranks_expect_processes(job.n_attention + job.n_ffn, exchange, &job);
}

static void of_all_sizes(void)
{
    struct proxy_job job = small;

    run(job);
    job.depth = 1;
    job.ops = 100;
    run(job);
    job.depth = 3;
    job.n_push = 2;
    job.n_pull = 1;
    job.push[0] = (3 << 20) + 13;
    job.pull[0] = 2500001;
    job.ops = 20;
    run(job);
}

static void between_many_ranks(void)
{
    struct proxy_job job = small;

    job.n_attention = 3;
    job.n_ffn = 2;
    job.ops = 100;
    run(job);
}

/* More tensors than one launch takes. */
static void in_several_launches(void)
{
    struct proxy_job job = small;

    job.n_ffn = PROXY_PEERS;
    job.n_pull = 3;
    job.pull[0] = 5001;
    job.pull[2] = 700;
    job.ops = 10;
    run(job);
}

static void replayed_as_graphs(void)
{
    struct proxy_job job = small;

    job.fixed = true;
    job.replays = 100;
    run(job);
    job.depth = 3;
    job.n_ffn = 2;
    run(job);
}

static void by_copy_engines(void)
{
    struct proxy_job job = small;

    job.engine = "ce";
    run(job);
    job.fixed = true;
    run(job);
    job.replays = 50;
    run(job);
}

static void at_one_end_alone(void)
{
    struct proxy_job job = small;

    for (int role = 0; role < 2; role++) {
        job.mailbox[role] = "gpu";
        job.mailbox[!role] = "host";
        run(job);
        job.engine = role ? NULL : "ce";
    }
}

static int commit_again(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    for (unsigned commit = 0; commit < 2; commit++) {
        if (proxy_rank_run(&rank, 0, 21))
            return 1;
        RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
        if (commit == 1 ? proxy_rank_plan(&rank)
                        : proxy_rank_withdraw(&rank) || proxy_rank_declare(&rank))
            return 1;
        RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    }
    if (proxy_rank_run(&rank, 0, 21))
        return 1;
    RANK_CHECK(boot, rank.n_wrong == 0 && rank.n_looked == 3 * 21);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

/* Nobody has been told: one direction, then the other, then both turn out to be cut off. */
static void where_one_does_not_reach_the_other(void)
{
    struct proxy_job job = small;

    job.mailbox[0] = job.mailbox[1] = NULL;
    for (int cut = 1; cut < 4; cut++) {
        job.cut[0] = cut & 1;
        job.cut[1] = cut & 2;
        run(job);
    }
    job.n_attention = 2;
    job.n_ffn = 3;
    job.ops = 50;
    run(job);
    job.n_attention = job.n_ffn = 1;
    ranks_expect_processes(2, commit_again, &job);
}

/* Told to write there, it has to. */
static int refuse(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) != STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION)
        RANK_CHECK(boot, strstr(stepaf_last_error()->text, "STEPAF_CUDA_MAILBOX=host") != NULL);
    proxy_rank_close(&rank);
    return 0;
}

static void told_to_use_gpu_memory(void)
{
    struct proxy_job job = small;

    job.mailbox[0] = job.mailbox[1] = "gpu";
    job.cut[0] = true;
    ranks_expect_processes(2, refuse, &job);
}

static void with_tensors_in_host_memory(void)
{
    struct proxy_job job = small;

    job.in_host[0] = job.in_host[1] = true;
    run(job);
    job.engine = "ce";
    run(job);
}

/* Kernels send the tensor in host memory, of which the receiver knows nothing, and copy engines send
 * the others. */
static void by_copy_engines_but_for_one_tensor(void)
{
    struct proxy_job job = small;

    job.engine = "ce";
    job.timeout_us = "3000000";
    job.n_pull = 3;
    for (int i = 0; i < PROXY_TENSORS; i++) {
        job.push[i] = (uint32_t)(100 + 4000 * i);
        job.pull[i] = (uint32_t)(9001 - 4000 * i);
    }
    for (int i = 1; i <= PROXY_TENSORS; i++) {
        job.host_source[0] = i;
        job.host_source[1] = PROXY_TENSORS + 1 - i;
        job.fixed = i == PROXY_TENSORS;
        run(job);
        job.n_ffn = i;
    }
}

/* ---- commits, and peers that go ---- */

static void over_several_commits(void)
{
    struct proxy_job job = small;

    job.depth = 3;
    ranks_expect_processes(2, commit_again, &job);
}

/* The FFN rank goes while the other's stream waits for its answer. */
static int go_away(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;
    stepaf_status_t status = STEPAF_OK;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_FFN) {
        RANK_CHECK(boot, proxy_rank_begin(&rank, 0) == STEPAF_OK);
        RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
        _exit(0);
    }
    RANK_CHECK(boot, proxy_rank_begin(&rank, 0) == STEPAF_OK);
    RANK_CHECK(boot, proxy_rank_end(&rank, 0) == STEPAF_OK);
    for (int i = 0; i < PROXY_SYNC_MS && !status; i++) {
        usleep(1000);
        (void)stepaf_progress(rank.ctx);
        status = stepaf_plan_status(rank.plan);
    }
    RANK_CHECK(boot, status == STEPAF_ERR_PEER_LOST);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "FFN rank 0") != NULL);
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS)); /* the stream is released */
    proxy_rank_close(&rank);
    return 0;
}

static void a_lost_peer_releases_the_stream(void)
{
    struct proxy_job job = small;

    ranks_expect_processes(2, go_away, &job);
}

/* ---- what is laid out, and what is told ---- */

enum { DEPTH = 2, SIZE = 100000, PULL = 500 };

static struct fake_job *job, *other;

static void declare(uint64_t id, stepaf_direction_t direction, size_t bytes)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_DEPTH | STEPAF_KEY_MEM_KIND,
                                  .depth = DEPTH,
                                  .mem_kind = STEPAF_MEM_CUDA};

    CU_ASSERT_EQUAL_FATAL(stepaf_key_declare(job->handle, id, direction, bytes, &params),
                          STEPAF_OK);
    CU_ASSERT_EQUAL_FATAL(stepaf_key_declare(other->handle, id, direction, bytes, &params),
                          STEPAF_OK);
}

static void make(struct fake_job *its)
{
    stepaf_tensor_t push = {.key = 1}, pull = {.key = 2, .bytes = PULL};
    stepaf_plan_h made;
    uint8_t *memory;

    CU_ASSERT_EQUAL_FATAL(
        stepaf_alloc(its->handle, SIZE + (size_t)DEPTH * PULL, STEPAF_MEM_CUDA, (void **)&memory),
        STEPAF_OK);
    pull.data = memory + SIZE;
    if (its->ctx->role == STEPAF_ATTENTION) {
        push.data = memory;
        push.bytes = SIZE;
    }
    CU_ASSERT_EQUAL_FATAL(plan_create(its->handle, &push, 1, &pull, 1, STEPAF_PLAN_STREAM, &made),
                          STEPAF_OK);
}

static void begin(const char *setting)
{
    cpu_device_begin();
    setenv("STEPAF_CUDA_MAILBOX", setting, 1);
    job = fake_open(STEPAF_FFN, 1, 1);
    other = fake_open(STEPAF_ATTENTION, 1, 1);
    unsetenv("STEPAF_CUDA_MAILBOX");
    declare(1, STEPAF_PUSH, SIZE);
    declare(2, STEPAF_PULL, PULL);
    make(job);
    make(other);
    fake_pair(job, other);
}

static stepaf_status_t commit(void)
{
    CU_ASSERT_EQUAL_FATAL(stepaf_streams_prepare(other->ctx), STEPAF_OK);
    return fake_commit(job, other);
}

static void end(void)
{
    fake_close(job);
    fake_close(other);
    CU_ASSERT_EQUAL(cpu_device.n_held, 0);
    CU_ASSERT_EQUAL(cpu_device_count(), 0);
    cpu_device_end();
}

static uint64_t host_bytes(void)
{
    return job->ctx->gpu.streams->host[0].bytes;
}

/* Where the device exports no memory. */
static void what_cannot_be_shared_goes_by_the_host(void)
{
    begin("auto");
    job->ctx->gpu.device->facts.unshared = true;
    other->ctx->gpu.device->facts.unshared = true;
    CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
    CU_ASSERT_TRUE(host_bytes() > 0);
    CU_ASSERT_EQUAL(job->ctx->gpu.streams->n_imports, 0);
    end();
}

/* As much for each slot as the tensor, a flag for each chunk, and a head. */
static void as_much_memory_as_is_said(void)
{
    uint64_t chunks = (SIZE + 1023) / 1024, slot = STEPAF_HEAD_BYTES + chunks * (1024 + 128);

    begin("host");
    CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
    CU_ASSERT_EQUAL(host_bytes(), DEPTH * ((slot + 511) / 512 * 512));
    end();
}

/* The descriptor that a peer tells of is not what it should be. */
static void lies_about_host_memory_are_found(void)
{
    begin("host");
    CU_ASSERT_EQUAL_FATAL(commit(), STEPAF_OK);
    struct stepaf_peer *peer = &job->ctx->peers[0];
    stepaf_streams_unmap_host(job->ctx, job->ctx->gpu.streams);
    CU_ASSERT_EQUAL(stepaf_streams_map_host(peer, 0, 4096), STEPAF_ERR_NO_TRANSPORT);
    UNIT_CONTAINS(stepaf_last_error()->text, "attention rank 0");
    UNIT_CONTAINS(stepaf_last_error()->text, "in host memory cannot be mapped");
    CU_ASSERT_EQUAL(
        stepaf_streams_map_host(peer, other->ctx->gpu.streams->host[0].mem.fd, UINT64_C(1) << 40),
        STEPAF_ERR_NO_TRANSPORT);
    CU_ASSERT_EQUAL(stepaf_streams_map_host(peer, other->ctx->gpu.streams->host[0].mem.fd, 4096),
                    STEPAF_OK);
    end();
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"of all sizes", of_all_sizes},
        {"between many ranks", between_many_ranks},
        {"in several launches", in_several_launches},
        {"replayed as graphs", replayed_as_graphs},
        {"by copy engines", by_copy_engines},
        {"at one end alone", at_one_end_alone},
        {"where one does not reach the other", where_one_does_not_reach_the_other},
        {"told to use GPU memory", told_to_use_gpu_memory},
        {"with tensors in host memory", with_tensors_in_host_memory},
        {"by copy engines but for one tensor", by_copy_engines_but_for_one_tensor},
        {"over several commits", over_several_commits},
        {"a lost peer", a_lost_peer_releases_the_stream},
        {"what cannot be shared", what_cannot_be_shared_goes_by_the_host},
        {"as much memory as is said", as_much_memory_as_is_said},
        {"lies about host memory", lies_about_host_memory_are_found},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
