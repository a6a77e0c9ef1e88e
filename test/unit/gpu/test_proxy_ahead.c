/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that wait for this process, by way of the host: how much they take, what is refused
 * meanwhile, and what a context has beside them. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "cpu_device/cpu_device.h"
#include "cpu_device/queue.h"
#include "gpu/proxy.h"
#include "proxy_rank.h"
#include "unit.h"

static const struct proxy_job job = {
    .n_attention = 1,
    .n_ffn = 1,
    .transports = "shm",
    .proxy = "always",
    .depth = 2,
    .n_push = 1,
    .n_pull = 1,
    .push = {64},
    .pull = {64},
};

/* Operations until a stream has no room for more. */
static unsigned fill_up(struct proxy_rank *rank, stepaf_status_t *status_p)
{
    unsigned n = 0;

    while (n <= 2 * STEPAF_PROXY_AHEAD) {
        *status_p = stepaf_start_on_stream(rank->plan, NULL, &rank->stream, NULL);
        if (!*status_p)
            *status_p = stepaf_wait_on_stream(rank->plan, &rank->stream);
        if (*status_p)
            break;
        n++;
    }
    return n;
}

static int serve(struct proxy_rank *rank, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        RANK_CHECK(rank->boot, stepaf_recv_on_stream(rank->plan, &rank->stream) == STEPAF_OK);
        RANK_CHECK(rank->boot,
                   stepaf_respond_on_stream(rank->plan, NULL, &rank->stream) == STEPAF_OK);
    }
    return 0;
}

static int run_ahead(const stepaf_boot_t *boot, void *arg)
{
    stepaf_tensor_t push = {.key = 100, .bytes = 64}, pull = {.key = 200, .bytes = 64};
    stepaf_status_t status = STEPAF_OK;
    struct proxy_rank rank;
    stepaf_plan_h plan;
    void *spare;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_alloc(rank.ctx, 64, STEPAF_MEM_CUDA, &spare) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_alloc(rank.ctx, 64, STEPAF_MEM_HOST, &push.data) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    if (rank.role == STEPAF_ATTENTION) { /* nobody has answered anything yet */
        RANK_CHECK(boot, fill_up(&rank, &status) == STEPAF_PROXY_AHEAD);
        RANK_CHECK(boot, status == STEPAF_ERR_WOULD_BLOCK);
        RANK_CHECK(boot, stepaf_plan_destroy(rank.plan) == STEPAF_ERR_STATE);
        RANK_CHECK(boot, stepaf_free(rank.ctx, spare) == STEPAF_ERR_STATE);
        pull.data = rank.target[0];
        RANK_CHECK(boot, stepaf_plan_create(rank.ctx, &push, 1, &pull, 1, STEPAF_PLAN_STREAM,
                                            &plan) == STEPAF_ERR_STATE);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    if (rank.role == STEPAF_FFN && serve(&rank, STEPAF_PROXY_AHEAD))
        return 1;
    RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_free(rank.ctx, spare) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_plan_destroy(rank.plan) == STEPAF_OK);
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void a_stream_has_room_for_so_many(void)
{
    struct proxy_job its = job;

    ranks_expect_processes(2, run_ahead, &its);
    its.transports = "tcp";
    ranks_expect_processes(2, run_ahead, &its);
}

/* All that was enqueued has come by, at all ranks. */
static int finish(struct proxy_rank *rank)
{
    RANK_CHECK(rank->boot, cpu_queue_sync(PROXY_SYNC_MS));
    RANK_CHECK(rank->boot, stepaf_plan_status(rank->plan) == STEPAF_OK);
    RANK_CHECK(rank->boot, stepaf_barrier(rank->ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(rank);
    return 0;
}

static void nothing(void *arg, uint64_t n)
{
    (void)arg, (void)n;
}

/* A stream holds as much as there is room for, most of it the caller's own work; so a launch of the
 * library's has to wait until an answer comes, which the thread has to take in. */
static int fill_with_work(const stepaf_boot_t *boot, void *arg)
{
    enum { ROOM = 40, OPS = 12 };
    const struct proxy_job *its = arg;
    const struct timespec late = {.tv_nsec = 100000000};
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, its, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    cpu_queue_limit(ROOM);
    for (int n = 0; rank.role == STEPAF_ATTENTION && n < OPS; n++) {
        RANK_CHECK(boot, stepaf_start_on_stream(rank.plan, NULL, &rank.stream, NULL) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_wait_on_stream(rank.plan, &rank.stream) == STEPAF_OK);
        while (cpu_queue_left() < ROOM)
            cpu_queue_call(&rank.stream, nothing, NULL, 0);
    }
    for (int n = 0; rank.role == STEPAF_FFN && n < OPS; n++) {
        nanosleep(&late, NULL);
        if (serve(&rank, 1))
            return 1;
        while (cpu_queue_left() < ROOM - 1 && n % 2)
            cpu_queue_call(&rank.stream, nothing, NULL, 0);
    }
    return finish(&rank);
}

/* One thread starts, and waits for some by their requests, another waits for what is started: each
 * has the plan to itself while it enqueues. */
enum { SHARED_OPS = 300 };

static atomic_bool all_started;

/* Until nothing is left; NULL, or what it is that goes wrong. */
static void *wait_for_all(void *arg)
{
    const struct proxy_rank *rank = arg;
    stepaf_status_t status = STEPAF_OK;

    for (bool all = false; status == STEPAF_OK || (status == STEPAF_ERR_STATE && !all);) {
        all = atomic_load(&all_started); /* before */
        status = stepaf_wait_on_stream(rank->plan, (void *)&rank->stream);
    }
    return status == STEPAF_ERR_STATE ? NULL : (void *)stepaf_status_name(status);
}

static int share_a_plan(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;
    void *wrong = NULL;
    pthread_t thread;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    cpu_queue_limit(8);
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot, pthread_create(&thread, NULL, wait_for_all, &rank) == 0);
        for (unsigned n = 0; n < SHARED_OPS;) {
            stepaf_request_h request = NULL;
            stepaf_status_t status =
                stepaf_start_on_stream(rank.plan, NULL, &rank.stream, n % 3 ? NULL : &request);
            RANK_CHECK(boot, status == STEPAF_OK || status == STEPAF_ERR_WOULD_BLOCK);
            RANK_CHECK(boot, !request || stepaf_wait(request, -1) == STEPAF_OK);
            n += status == STEPAF_OK;
        }
        atomic_store(&all_started, true);
        RANK_CHECK(boot, pthread_join(thread, &wrong) == 0);
        RANK_CHECK(boot, wrong == NULL);
    } else if (serve(&rank, SHARED_OPS)) {
        return 1;
    }
    return finish(&rank);
}

static void two_threads_share_a_plan(void)
{
    struct proxy_job its = job;

    ranks_expect_processes(2, share_a_plan, &its);
    its.depth = 5;
    ranks_expect_processes(2, share_a_plan, &its);
}

/* Wait for an operation while another thread enqueues the next in its slot: it is not that one that
 * is waited for. */
struct waiting {
    stepaf_request_h request;
    stepaf_status_t status;
};

static void *wait_for_one(void *arg)
{
    const struct timespec little = {.tv_nsec = 20000000}; /* until the next start waits */
    struct waiting *its = arg;

    nanosleep(&little, NULL);
    its->status = stepaf_wait(its->request, 5000000);
    return NULL;
}

/* Or it is not there any more. */
static bool was_waited_for(stepaf_status_t status)
{
    return status == STEPAF_OK || status == STEPAF_ERR_STATE || status == STEPAF_ERR_HANDLE;
}

static int wait_for_an_old_one(const stepaf_boot_t *boot, void *arg)
{
    enum { OPS = 5 };
    const struct timespec late = {.tv_nsec = 100000000}, soon = {.tv_nsec = 10000000};
    struct waiting its[OPS];
    pthread_t thread[OPS];
    struct proxy_rank rank;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    cpu_queue_limit(20);
    for (int n = 0; rank.role == STEPAF_ATTENTION && n < OPS; n++) {
        void *stream = &rank.stream;
        if (n)
            RANK_CHECK(boot, pthread_create(&thread[n - 1], NULL, wait_for_one, &its[n - 1]) == 0);
        RANK_CHECK(boot,
                   stepaf_start_on_stream(rank.plan, NULL, stream, &its[n].request) == STEPAF_OK);
        nanosleep(&soon, NULL); /* the other thread is next */
        RANK_CHECK(boot, stepaf_wait_on_stream(rank.plan, stream) == STEPAF_OK);
        while (cpu_queue_left() < 20)
            cpu_queue_call(&rank.stream, nothing, NULL, 0);
    }
    if (rank.role == STEPAF_ATTENTION) {
        RANK_CHECK(boot, stepaf_wait(its[OPS - 1].request, -1) == STEPAF_OK);
        for (int n = 0; n < OPS - 1; n++)
            RANK_CHECK(boot, pthread_join(thread[n], NULL) == 0 && was_waited_for(its[n].status));
    }
    for (int n = 0; rank.role == STEPAF_FFN && n < OPS; n++) {
        nanosleep(&late, NULL);
        if (serve(&rank, 1))
            return 1;
    }
    return finish(&rank);
}

static void an_old_request_takes_nothing_new(void)
{
    struct proxy_job its = job;

    its.depth = 1;
    ranks_expect_processes(2, wait_for_an_old_one, &its);
}

static void a_full_stream_does_not_keep_the_thread(void)
{
    struct proxy_job its = job;

    its.timeout_us = "10000000";
    ranks_expect_processes(2, fill_with_work, &its);
    its.transports = "tcp";
    ranks_expect_processes(2, fill_with_work, &its);
}

/* The last operation is enqueued when its rank commits: the commit lets the stream come by. */
static int commit_behind(const stepaf_boot_t *boot, void *arg)
{
    struct proxy_rank rank;
    stepaf_status_t status;

    if (proxy_rank_open(&rank, arg, boot))
        return 1;
    RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
    for (int epoch = 0; epoch < 5; epoch++) {
        void *more;
        if (rank.role == STEPAF_FFN && serve(&rank, 3))
            return 1;
        for (int i = 0; rank.role == STEPAF_ATTENTION && i < 3; i++) {
            status = stepaf_start_on_stream(rank.plan, NULL, &rank.stream, NULL);
            RANK_CHECK(boot, status == STEPAF_OK);
            status = stepaf_wait_on_stream(rank.plan, &rank.stream);
            RANK_CHECK(boot, status == STEPAF_OK);
        }
        RANK_CHECK(boot, stepaf_alloc(rank.ctx, 64, STEPAF_MEM_HOST, &more) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_commit(rank.ctx) == STEPAF_OK);
        RANK_CHECK(boot, stepaf_plan_status(rank.plan) == STEPAF_OK);
    }
    RANK_CHECK(boot, stepaf_barrier(rank.ctx, STEPAF_GROUP_WORLD, -1) == STEPAF_OK);
    proxy_rank_close(&rank);
    return 0;
}

static void a_commit_lets_streams_come_by(void)
{
    struct proxy_job its = job;

    ranks_expect_processes(2, commit_behind, &its);
    its.transports = "tcp";
    ranks_expect_processes(2, commit_behind, &its);
}

/* A plan that the host starts, of which both tensors are in GPU memory. Its operation is begun and
 * ends while streams wait for the other rank: its copies come behind none of these. */
enum { BOTH_OPS = 20, BOTH_BYTES = 64, BOTH_PUSHED = 900, BOTH_PULLED = 901 };

struct both {
    struct proxy_rank rank;
    stepaf_plan_h plan;
    uint8_t *pushed, *pulled; /* FFN: pulled is what is answered from */
};

static int both_open(struct both *both)
{
    stepaf_key_params_t params = {.field_mask = STEPAF_KEY_MEM_KIND, .mem_kind = STEPAF_MEM_CUDA};
    stepaf_context_h ctx = both->rank.ctx;
    void *memory;

    RANK_CHECK(both->rank.boot,
               !stepaf_key_declare(ctx, BOTH_PUSHED, STEPAF_PUSH, BOTH_BYTES, &params) &&
                   !stepaf_key_declare(ctx, BOTH_PULLED, STEPAF_PULL, BOTH_BYTES, &params));
    RANK_CHECK(both->rank.boot, !stepaf_alloc(ctx, 2 * BOTH_BYTES, STEPAF_MEM_CUDA, &memory));
    both->pushed = memory;
    both->pulled = both->pushed + BOTH_BYTES;
    if (both->rank.role == STEPAF_FFN)
        return 0;
    stepaf_tensor_t push = {BOTH_PUSHED, both->pushed, BOTH_BYTES};
    stepaf_tensor_t pull = {BOTH_PULLED, both->pulled, BOTH_BYTES};
    RANK_CHECK(both->rank.boot, !stepaf_plan_create(ctx, &push, 1, &pull, 1, 0, &both->plan));
    return 0;
}

static bool is_all(const uint8_t *bytes, uint8_t value)
{
    for (int i = 0; i < BOTH_BYTES; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

static int both_ask(struct both *both, uint8_t value)
{
    stepaf_request_h request;

    memset(both->pushed, value, BOTH_BYTES);
    RANK_CHECK(both->rank.boot, stepaf_start(both->plan, &request) == STEPAF_OK);
    RANK_CHECK(both->rank.boot, stepaf_wait(request, 20000000) == STEPAF_OK);
    RANK_CHECK(both->rank.boot, is_all(both->pulled, (uint8_t)(value + 100)));
    return 0;
}

static int both_answer(struct both *both, uint8_t value)
{
    stepaf_tensor_info_t info = {.size = sizeof(info)};
    stepaf_tensor_t tensor = {BOTH_PULLED, both->pulled, BOTH_BYTES};
    stepaf_batch_h batch;
    int n;

    RANK_CHECK(both->rank.boot, stepaf_recv(both->rank.ctx, STEPAF_FROM_ANY, 0, 20000000, &batch, 1,
                                            &n) == STEPAF_OK);
    RANK_CHECK(both->rank.boot, stepaf_batch_tensor(batch, 0, &info) == STEPAF_OK);
    RANK_CHECK(both->rank.boot, info.mem_kind == STEPAF_MEM_CUDA && is_all(info.data, value));
    memset(tensor.data, value + 100, BOTH_BYTES);
    RANK_CHECK(both->rank.boot,
               stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, NULL) == STEPAF_OK);
    return 0;
}

static int have_both(const stepaf_boot_t *boot, void *arg)
{
    struct both both = {0};

    if (proxy_rank_open(&both.rank, arg, boot) || both_open(&both))
        return 1;
    RANK_CHECK(boot, stepaf_commit(both.rank.ctx) == STEPAF_OK);
    for (unsigned n = 0; n < BOTH_OPS; n++) {
        RANK_CHECK(boot, proxy_rank_begin(&both.rank, n) == STEPAF_OK);
        if ((both.rank.role == STEPAF_FFN ? both_answer : both_ask)(&both, (uint8_t)n))
            return 1;
        RANK_CHECK(boot, proxy_rank_end(&both.rank, n) == STEPAF_OK);
        RANK_CHECK(boot, cpu_queue_sync(PROXY_SYNC_MS));
    }
    RANK_CHECK(boot, both.rank.n_wrong == 0);
    return finish(&both.rank);
}

static void other_plans_may_have_gpu_memory(void)
{
    struct proxy_job its = job;

    ranks_expect_processes(2, have_both, &its);
    its.transports = "tcp";
    ranks_expect_processes(2, have_both, &its);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a stream has room for so many", a_stream_has_room_for_so_many},
        {"a full stream does not keep the thread", a_full_stream_does_not_keep_the_thread},
        {"two threads share a plan", two_threads_share_a_plan},
        {"an old request takes nothing new", an_old_request_takes_nothing_new},
        {"a commit lets streams come by", a_commit_lets_streams_come_by},
        {"other plans may have GPU memory", other_plans_may_have_gpu_memory},
        CU_TEST_INFO_NULL,
    };
    return unit_run(tests);
}
