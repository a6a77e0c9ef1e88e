/* SPDX-License-Identifier: Apache-2.0 */
/* Stream plans whose peers are reached by way of the host: every transport, every pair of kinds,
 * and every engine; and the same directly. Ranks are processes; their GPUs are made of memory. */
#include <string.h>

#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"
#include "proxy_rank.h"
#include "unit.h"

/* ---- exchanges ---- */

/* Whether memory of another process is mapped, which nobody needs who goes by way of the host. */
static bool is_direct(void)
{
    for (int i = 0; i < CPU_PIECES; i++)
        if (cpu_device.pieces[i].base && cpu_device.pieces[i].by)
            return true;
    return false;
}

static int exchange(const stepaf_boot_t *boot, void *arg)
{
    const struct proxy_job *job = arg;
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, job, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    RANK_CHECK(boot, is_direct() == !strcmp(job->proxy, "auto"));
    unsigned n = job->replays ? job->replays * job->depth : job->ops;
    if (job->replays && !rank.host ? proxy_rank_replay(&rank) : proxy_rank_run(&rank, 0, n))
        return 1;
    RANK_CHECK(boot, rank.n_looked == n);
    RANK_CHECK(boot, rank.n_wrong == 0);
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

static void over_every_transport(void)
{
    struct proxy_job job = proxy_small;

    run(job);
    run(proxy_large);
    job.transports = "tcp";
    run(job);
    job = proxy_large;
    job.transports = "tcp";
    run(job);
}

static void with_one_slot_and_with_many_peers(void)
{
    struct proxy_job job = proxy_small;

    job.depth = 1;
    job.ops = 100;
    run(job);
    job.n_ffn = 3;
    run(job);
    job.n_ffn = 1;
    job.n_attention = 3;
    run(job);
    job.depth = 3;
    job.n_ffn = 2;
    job.n_attention = 2;
    job.transports = "tcp";
    run(job);
}

/* More tensors than one launch takes, at one end of each pair. */
static void with_more_peers_than_a_launch_takes(void)
{
    struct proxy_job job = proxy_small;

    job.n_ffn = PROXY_PEERS;
    job.n_pull = 3;
    job.pull[2] = 700;
    job.ops = 30;
    job.host[1] = true;
    run(job);
    job.n_ffn = 1;
    job.n_attention = PROXY_PEERS;
    job.host[0] = true;
    job.host[1] = false;
    run(job);
}

static void by_copy_engines(void)
{
    struct proxy_job job = proxy_small;

    job.engine = "ce";
    run(job);
    job.fixed = true;
    job.transports = "tcp";
    run(job);
    job.in_host[0] = true;
    job.in_host[1] = true;
    run(job);
}

static void replayed_as_graphs(void)
{
    struct proxy_job job = proxy_small;

    job.fixed = true;
    job.replays = 100;
    run(job);
    job.transports = "tcp";
    job.depth = 3;
    job.n_ffn = 2;
    run(job);
}

static void between_host_plans_and_streams(void)
{
    struct proxy_job job = proxy_small;

    for (int i = 0; i < 4; i++) {
        job.host[0] = i & 1;
        job.host[1] = i & 2;
        job.transports = i % 2 ? "shm" : "tcp";
        job.n_attention = 1 + i % 2;
        job.n_ffn = 2;
        run(job);
    }
    job = proxy_small;
    job.host[0] = true;
    job.fixed = true;
    job.replays = 50;
    run(job);
}

static void with_tensors_in_host_memory(void)
{
    struct proxy_job job = proxy_small;

    for (int i = 1; i < 4; i++) {
        job.in_host[0] = i & 1;
        job.in_host[1] = i & 2;
        run(job);
    }
    job.host[1] = true; /* a stream plan on host memory, and no stream at the other end */
    job.in_host[0] = true;
    run(job);
}

/* Into memory of the other processes: inline, by pieces, in place and by way of mailboxes. */
static void without_the_host(void)
{
    struct proxy_job job = proxy_small;

    job.proxy = "auto";
    run(job);
    job.engine = "ce";
    run(job);
    job.fixed = true;
    run(job);
    job.replays = 100;
    run(job);
    job = proxy_large;
    job.proxy = "auto";
    run(job);
    job.in_host[0] = true; /* nobody writes there but its own GPU */
    run(job);
    job = proxy_small;
    job.proxy = "auto";
    job.n_attention = 3;
    job.n_ffn = 2;
    run(job);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"over every transport", over_every_transport},
        {"with one slot, and with many peers", with_one_slot_and_with_many_peers},
        {"with more peers than a launch takes", with_more_peers_than_a_launch_takes},
        {"by copy engines", by_copy_engines},
        {"replayed as graphs", replayed_as_graphs},
        {"between host plans and streams", between_host_plans_and_streams},
        {"without the host", without_the_host},
        {"with tensors in host memory", with_tensors_in_host_memory},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
