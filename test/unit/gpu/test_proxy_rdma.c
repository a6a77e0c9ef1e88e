/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans over RDMA: tensors go from GPU memory to GPU memory in place, where a network card
 * reaches it. Ranks are processes; their GPUs are made of memory, and so is the network
 * (test/softnic), which brings the bytes of writes in any order. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/handles.h"
#include "core/region.h"
#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"
#include "gpu/proxy.h"
#include "proxy_again.h"
#include "proxy_rank.h"
#include "unit.h"

/* Small tensors over the made-up card. */
static struct proxy_job small(void)
{
    struct proxy_job job = proxy_small;

    job.transports = "verbs";
    job.rdma = true;
    return job;
}

/* Whether the proxy has memory for what comes in, and for what goes out. */
static bool has_buffers(const struct proxy_rank *rank, bool in, bool out)
{
    struct stepaf_ctx *ctx;

    if (stepaf_enter_context(rank->ctx, &ctx))
        return false;
    const struct stepaf_streams *streams = ctx->gpu.streams;
    bool as_said = (streams->proxy_recv != NULL) == in && (streams->proxy_send != NULL) == out;
    stepaf_leave(ctx);
    return as_said;
}

/* What the map shows of the link. */
static bool says(const struct proxy_rank *rank, const char *words)
{
    stepaf_link_info_t link = {.size = sizeof(link)};

    return !stepaf_link_query(rank->ctx, 0, &link) && strstr(link.refused, words);
}

static int exchange(const stepaf_boot_t *boot, void *arg)
{
    const struct proxy_job *job = arg;
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, job, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    bool copied = job->in_host[rank.role == STEPAF_FFN] || !job->rdma;
    RANK_CHECK(boot, rank.host || has_buffers(&rank, copied, copied));
    unsigned n = job->replays ? job->replays * job->depth : job->ops;
    if (job->replays && !rank.host ? proxy_rank_replay(&rank) : proxy_rank_run(&rank, 0, n))
        return 1;
    RANK_CHECK(boot, rank.n_looked == n);
    RANK_CHECK(boot, rank.n_wrong == 0);
    RANK_CHECK(boot, (cpu_device.n_flushes > 0) == (job->flushes && !copied && !rank.host));
    RANK_CHECK(boot, cpu_device.n_copies == 0);
    RANK_CHECK(boot,
               rank.host || says(&rank, copied ? "by way of pinned" : "in place, peer memory"));
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    if (rank.plan)
        RANK_CHECK(boot, stepaf_plan_destroy(rank.plan) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void run(struct proxy_job job)
{
    ranks_expect_processes(job.n_attention + job.n_ffn, exchange, &job);
}

static void in_place(void)
{
    struct proxy_job job = small();

    run(job);
    job.flushes = true;
    job.fixed = true;
    run(job);
    job.depth = 1;
    job.ops = 100;
    run(job);
}

static void large_tensors(void)
{
    struct proxy_job job = small();

    job.depth = 3;
    job.n_push = 2;
    job.n_pull = 1;
    job.push[0] = 3 << 20;
    job.push[1] = 100;
    job.pull[0] = 2500001;
    job.ops = 20;
    run(job);
}

static void with_many_peers(void)
{
    struct proxy_job job = small();

    job.ops = 100;
    job.n_attention = 2;
    job.n_ffn = 2;
    run(job);
}

static void replayed_as_graphs(void)
{
    struct proxy_job job = small();

    job.fixed = true;
    job.replays = 200;
    run(job);
    job.engine = "ce";
    job.depth = 3;
    job.n_ffn = 2;
    run(job);
}

/* A source is written anew as soon as the stream has come by its send. */
static void from_one_source_over_and_over(void)
{
    struct proxy_job job = small();

    setenv("SOFTNIC_LATENCY_NS", "200000", 1); /* so that it takes long to know */
    job.one_source = true;
    job.push[1] = job.pull[0] = 200000;
    job.ops = 100;
    run(job);
    job.fixed = true;
    job.replays = 40;
    run(job);
    unsetenv("SOFTNIC_LATENCY_NS");
}

/* What a caller promises not to do is not waited for. */
static int count_launches(const stepaf_boot_t *boot, void *arg)
{
    const struct proxy_job *job = arg;
    struct proxy_rank rank;
    int each = job->flags ? 2 : 3; /* send, gate, and the wait for the card */

    if (proxy_rank_open(&rank, job, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    int before = cpu_device.n_launches;
    RANK_CHECK(boot, proxy_rank_run(&rank, 0, 1) == 0);
    RANK_CHECK(boot, rank.n_wrong == 0);
    if (rank.role == STEPAF_FFN)
        each = 2;
    RANK_CHECK(boot, cpu_device.n_launches - before == each);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void sources_that_are_kept_are_not_waited_for(void)
{
    struct proxy_job job = small();

    job.depth = 1;
    job.fixed = true;
    ranks_expect_processes(2, count_launches, &job);
    job.flags = STEPAF_PLAN_KEEP_SOURCES;
    ranks_expect_processes(2, count_launches, &job);
}

/* Other sources than planned, and other ends than streams. */
static void with_other_ends(void)
{
    struct proxy_job job = small();

    job.host[0] = true;
    run(job);
    job.host[0] = false;
    job.host[1] = true;
    run(job);
    job.host[1] = false;
    job.in_host[0] = true;
    run(job);
    job.in_host[0] = false;
    job.in_host[1] = true;
    run(job);
}

/* Without a card that reaches GPU memory all goes by way of the proxy's buffers. */
static void by_the_proxy_where_the_card_does_not_reach(void)
{
    struct proxy_job job = small();

    job.rdma = false;
    run(job);
    job.push[1] = 3 << 20; /* part by part, whose writes come in any order */
    job.pull[0] = 2500001;
    job.ops = 20;
    run(job);
}

/* The card connects to nobody: another transport carries what was laid out for it, by the regions'
 * stages. */
static int go_another_way(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, has_buffers(&rank, false, false));
    RANK_CHECK(boot, says(&rank, "by way of bounce buffers"));
    RANK_CHECK(boot, proxy_rank_run(&rank, 0, 60) == 0);
    RANK_CHECK(boot, rank.n_wrong == 0);
    RANK_CHECK(boot, cpu_device.n_copies > 0);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_key_declare(rank.ctx, 1000, STEPAF_PULL, 8, NULL) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, has_buffers(&rank, true, true)); /* now it is known */
    RANK_CHECK(boot, proxy_rank_run(&rank, 0, 60) == 0);
    RANK_CHECK(boot, rank.n_wrong == 0);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void another_transport_takes_the_cards_place(void)
{
    struct proxy_job job = small();

    job.transports = "verbs,tcp";
    setenv("SOFTNIC_REFUSES", "1", 1);
    ranks_expect_processes(2, go_another_way, &job);
    unsetenv("SOFTNIC_REFUSES");
}

/* Memory that no commit has made ready is refused, and nothing is enqueued. */
static int refuse_what_is_not_ready(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;
    uint8_t *late;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot,
                   stepaf_alloc(rank.ctx, 4096, STEPAF_MEM_CUDA, (void **)&late) == STEPAF_OK);
        stepaf_tensor_t push[] = {{100, late, 112}, {101, late, 4096}, {102, late, 8}};
        stepaf_start_params_t params = {
            .field_mask = STEPAF_START_PARAM_PUSH, .push = push, .n_push = 3};
        RANK_CHECK(boot, stepaf_start_on_stream(rank.plan, &params, &rank.stream, NULL) ==
                             STEPAF_ERR_UNSUPPORTED);
        RANK_CHECK(boot, strstr(stepaf_last_error()->text, "no commit has prepared"));
    }
    RANK_CHECK(boot, proxy_rank_run(&rank, 0, 4) == 0);
    RANK_CHECK(boot, rank.n_wrong == 0);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void memory_that_is_not_ready_is_refused(void)
{
    struct proxy_job job = small();

    ranks_expect_processes(2, refuse_what_is_not_ready, &job);
}

/* ---- life ---- */

/* An ordinary plan goes on with another slot than the stream begins with. */
static void again_after_each_commit(void)
{
    struct proxy_job job = small();

    job.fixed = true;
    ranks_expect_processes(2, proxy_commit_again, &job);
    job.depth = 3;
    job.host[0] = true;
    ranks_expect_processes(2, proxy_commit_again, &job);
}

static void keys_go(void)
{
    struct proxy_job job = small();

    ranks_expect_processes(2, proxy_withdraw_keys, &job);
}

/* The graph of an epoch that is over sends nothing, and waits for nothing. */
static int replay_too_late(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, proxy_rank_replay(&rank) == 0);
    RANK_CHECK(boot, rank.n_wrong == 0);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_key_declare(rank.ctx, 1000, STEPAF_PULL, 8, NULL) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    unsigned n_looked = rank.n_looked;
    cpu_queue_replay(1, rank.job->depth);
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    RANK_CHECK(boot, rank.n_looked == n_looked + rank.job->depth);
    RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void a_graph_of_before_does_nothing(void)
{
    struct proxy_job job = small();

    job.fixed = true;
    job.replays = 10;
    ranks_expect_processes(2, replay_too_late, &job);
}

/* ---- failures ---- */

/* The peer dies while the stream waits, long before the deadline. */
static int lose_the_peer(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, proxy_rank_run(&rank, 0, 4) == 0);
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot, proxy_rank_begin(&rank, 4) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
    }
    (void)stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1); /* the other may be dead by its end */
    if (rank.role == STEPAF_FFN)
        _exit(3);
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_ERR_PEER_LOST);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "FFN rank 0"));
    proxy_rank_close(&rank);
    return 0;
}

static void a_peer_that_dies_ends_the_wait(void)
{
    struct proxy_job job = small();
    int statuses[2];

    job.timeout_us = "60000000";
    setenv("STEPAF_VERBS_PEER_TIMEOUT_US", "1000000", 1);
    ranks_run(2, lose_the_peer, &job, statuses);
    CU_ASSERT_EQUAL(statuses[0], 0);
    CU_ASSERT(WIFEXITED(statuses[1]) && WEXITSTATUS(statuses[1]) == 3);
    unsetenv("STEPAF_VERBS_PEER_TIMEOUT_US");
}

/* One of two rails dies on the way: what was under way goes over the other. */
static void a_rail_that_dies_is_left(void)
{
    struct proxy_job job = small();

    setenv("SOFTNIC_DEVICES", "2", 1);
    setenv("SOFTNIC_DIES", "0:150", 1);
    setenv("STEPAF_NET_DEVICES", "softnic0,softnic1", 1);
    run(job);
    unsetenv("SOFTNIC_DEVICES");
    unsetenv("STEPAF_NET_DEVICES");
    unsetenv("SOFTNIC_DIES");
}

/* The only one dies while the stream waits. */
static int lose_the_rail(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    for (unsigned n = 0; n < 200 && !stepaf_plan_status(rank.plan); n++) {
        if (proxy_rank_begin(&rank, n) || proxy_rank_end(&rank, n))
            break;
        RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    }
    RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_ERR_PEER_LOST);
    RANK_CHECK(boot, strstr(stepaf_last_error()->text, "softnic0"));
    proxy_rank_close(&rank);
    return 0;
}

static void the_last_rail_ends_the_wait(void)
{
    struct proxy_job job = small();

    job.timeout_us = "60000000";
    job.depth = 1;
    setenv("SOFTNIC_DIES", "0:100", 1);
    setenv("STEPAF_VERBS_PEER_TIMEOUT_US", "1000000", 1);
    ranks_expect_processes(2, lose_the_rail, &job);
    unsetenv("SOFTNIC_DIES");
    unsetenv("STEPAF_VERBS_PEER_TIMEOUT_US");
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"in place", in_place},
        {"large tensors", large_tensors},
        {"with many peers", with_many_peers},
        {"replayed as graphs", replayed_as_graphs},
        {"from one source over and over", from_one_source_over_and_over},
        {"sources that are kept", sources_that_are_kept_are_not_waited_for},
        {"with other ends", with_other_ends},
        {"by the proxy where the card does not reach", by_the_proxy_where_the_card_does_not_reach},
        {"another transport takes the card's place", another_transport_takes_the_cards_place},
        {"memory that is not ready is refused", memory_that_is_not_ready_is_refused},
        {"again after each commit", again_after_each_commit},
        {"keys go", keys_go},
        {"a graph of before does nothing", a_graph_of_before_does_nothing},
        {"a peer that dies ends the wait", a_peer_that_dies_ends_the_wait},
        {"a rail that dies is left", a_rail_that_dies_is_left},
        {"the last rail ends the wait", the_last_rail_ends_the_wait},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
