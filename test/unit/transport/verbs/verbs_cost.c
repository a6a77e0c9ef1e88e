/* SPDX-License-Identifier: Apache-2.0 */
/* What RDMA costs a rank in instructions, to be run by callgrind, as test/lib/verbs_cost.sh does.
 *
 * One attention rank and some FFN ranks are contexts of this process, on made-up devices. Callgrind
 * switches collecting whenever it enters or leaves a function whose name begins with "counted_":
 * on at the library's calls, off again within the device's, whose work is no software's. It dumps
 * after each call of "counts_end"; what the dumps are of is printed here, in the same order: step,
 * FFN ranks, pushed tensors, their bytes, operations. Without callgrind the program checks what it
 * can count itself: work requests, and calls of the device.
 *
 * "verbs_cost time" needs no callgrind: it prints by how many nanoseconds an operation of one FFN rank, with both
 * ranks' work and the device's, takes longer where STEPAF_METRICS is on than where it is off. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <time.h>

#include <stepaf/boot.h>
#include <stepaf/stepaf.h>

#include "verbs_device.h"

enum { FFN_MAX = 8, WARM_UP = 32, OPERATIONS = 64, PUSH = 1, PULL = 2 };

/* A job: contexts by world rank, the first is the attention rank's. */
static int n_ffn;
static size_t tensor_bytes;
static int n_tensors;
static bool tells_times; /* answers do: that takes more */
static stepaf_boot_local_t *local;
static stepaf_context_h contexts[1 + FFN_MAX];
static uint8_t *memories[1 + FFN_MAX];
static stepaf_plan_h plan;

/* Ranks are threads only while they commit. */
static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stepaf_verbs_provider provider;

static void must(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "verbs_cost: %s: %s\n", what, stepaf_last_error()->text);
    exit(99);
}

/* ---- the device, which is not counted ---- */

static __attribute__((noinline)) int counted_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
                                                       struct ibv_send_wr **bad_p)
{
    return verbs_device_provider.post_send(qp, wr, bad_p);
}

static __attribute__((noinline)) int counted_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
                                                       struct ibv_recv_wr **bad_p)
{
    return verbs_device_provider.post_recv(qp, wr, bad_p);
}

static __attribute__((noinline)) int counted_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc_p)
{
    return verbs_device_provider.poll_cq(cq, n, wc_p);
}

static int locked_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_p)
{
    pthread_mutex_lock(&device_lock);
    int error = verbs_device_provider.post_send(qp, wr, bad_p);
    pthread_mutex_unlock(&device_lock);
    return error;
}

static int locked_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_p)
{
    pthread_mutex_lock(&device_lock);
    int error = verbs_device_provider.post_recv(qp, wr, bad_p);
    pthread_mutex_unlock(&device_lock);
    return error;
}

static int locked_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc_p)
{
    pthread_mutex_lock(&device_lock);
    int got = verbs_device_provider.poll_cq(cq, n, wc_p);
    pthread_mutex_unlock(&device_lock);
    return got;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    pthread_mutex_lock(&device_lock);
    struct ibv_qp *qp = verbs_device_provider.create_qp(pd, attr);
    pthread_mutex_unlock(&device_lock);
    return qp;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    pthread_mutex_lock(&device_lock);
    int error = verbs_device_provider.modify_qp(qp, attr, mask);
    pthread_mutex_unlock(&device_lock);
    return error;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *base, size_t bytes, int access)
{
    pthread_mutex_lock(&device_lock);
    struct ibv_mr *mr = verbs_device_provider.reg_mr(pd, base, bytes, access);
    pthread_mutex_unlock(&device_lock);
    return mr;
}

/* From now on calls of the device are, or are not, from within what is counted. */
static bool count(bool on)
{
    provider.post_send = on ? counted_post_send : locked_post_send;
    provider.post_recv = on ? counted_post_recv : locked_post_recv;
    provider.poll_cq = on ? counted_poll_cq : locked_poll_cq;
    return on;
}

static void set_provider(void)
{
    verbs_device_reset();
    provider = verbs_device_provider;
    (void)count(false);
    provider.create_qp = create_qp;
    provider.modify_qp = modify_qp;
    provider.reg_mr = reg_mr;
    stepaf_verbs_provider = &provider;
}

/* ---- the job ---- */

static void declare(stepaf_context_h ctx)
{

    for (int i = 0; i < n_tensors; i++) {
        must(!stepaf_key_declare(ctx, (uint64_t)PUSH << 32 | (uint64_t)i, STEPAF_PUSH, tensor_bytes,
                                 NULL),
             "key");
    }
    must(!stepaf_key_declare(ctx, (uint64_t)PULL << 32, STEPAF_PULL, tensor_bytes, NULL), "key");
}

static void make_plan(stepaf_context_h ctx, uint8_t *memory)
{
    stepaf_tensor_t push[STEPAF_MAX_TENSORS], pull[FFN_MAX];

    for (int i = 0; i < n_tensors; i++)
        push[i] = (stepaf_tensor_t){.key = (uint64_t)PUSH << 32 | (uint64_t)i,
                                    .data = memory + (size_t)i * tensor_bytes,
                                    .bytes = tensor_bytes};
    for (int f = 0; f < n_ffn; f++)
        pull[f] = (stepaf_tensor_t){.key = (uint64_t)PULL << 32,
                                    .data = memory + (size_t)(n_tensors + f) * tensor_bytes,
                                    .bytes = tensor_bytes};
    must(!stepaf_plan_create(ctx, push, n_tensors, pull, n_ffn, 0, &plan), "plan");
}

static void *join(void *arg)
{
    int rank = *(int *)arg;
    stepaf_context_h *ctx = &contexts[rank];
    stepaf_boot_t boot;
    void *memory;

    must(!stepaf_boot_local_attach(local, rank, -1, &boot), "attach");
    must(!stepaf_init(&boot, NULL, ctx), "init");
    must(
        !stepaf_alloc(*ctx, (size_t)(n_tensors + FFN_MAX) * tensor_bytes, STEPAF_MEM_HOST, &memory),
        "alloc");
    memories[rank] = memory;
    declare(*ctx);
    if (rank == 0)
        make_plan(*ctx, memory);
    must(!stepaf_commit(*ctx), "commit");
    return NULL;
}

static void open_job(void)
{
    pthread_t threads[1 + FFN_MAX];
    int ranks[1 + FFN_MAX];
    char split[32];

    snprintf(split, sizeof(split), "attn=1,ffn=%d", n_ffn);
    setenv("STEPAF_SPLIT", split, 1);
    must(!stepaf_boot_local_create(1 + n_ffn, &local), "bootstrap");
    for (int i = 0; i <= n_ffn; i++) {
        ranks[i] = i;
        must(!pthread_create(&threads[i], NULL, join, &ranks[i]), "thread");
    }
    for (int i = 0; i <= n_ffn; i++)
        pthread_join(threads[i], NULL);
}

static void close_job(void)
{
    for (int i = 0; i <= n_ffn; i++)
        stepaf_finalize(contexts[i]);
    stepaf_boot_local_destroy(local);
}

/* ---- what is counted ---- */

static __attribute__((noinline)) void counted_start(stepaf_request_h *request_p)
{
    must(!stepaf_start(plan, request_p), "start");
}

static __attribute__((noinline)) void counted_wait(stepaf_request_h request)
{
    must(!stepaf_wait(request, 1000000), "wait");
}

static __attribute__((noinline)) void counted_recv(stepaf_context_h ctx, stepaf_batch_h *batch_p)
{
    int n;

    must(!stepaf_recv(ctx, STEPAF_FROM_ANY, 0, 1000000, batch_p, 1, &n), "recv");
}

static __attribute__((noinline)) void counted_respond(stepaf_batch_h batch,
                                                      const stepaf_tensor_t *tensor)
{
    must(!stepaf_respond(batch, tensor, 1, STEPAF_RESPOND_RELEASE, NULL), "respond");
}

static __attribute__((noinline)) void counts_end(const char *what)
{
    printf("%s %d %d %zu %d\n", what, n_ffn, n_tensors, tensor_bytes, OPERATIONS);
}

enum what { NOTHING, START, WAIT, RECV, RESPOND };

/* A step has cost so many work requests and calls of the device. */
static void expect(unsigned n_requests, unsigned n_doorbells, const char *what)
{
    must(verbs_device.n_requests == n_requests && verbs_device.n_doorbells == n_doorbells, what);
    verbs_device.n_requests = verbs_device.n_doorbells = 0;
}

/* One operation, of which one step is counted: at all FFN ranks that is done there. */
static void operate(enum what what)
{
    stepaf_request_h request;
    stepaf_batch_h batch;

    verbs_device.n_requests = verbs_device.n_doorbells = 0;
    if (count(what == START))
        counted_start(&request);
    else
        must(!stepaf_start(plan, &request), "start");
    expect((unsigned)(n_tensors * n_ffn), (unsigned)n_ffn, "the requests of a start");
    for (int f = 1; f <= n_ffn; f++) {
        stepaf_tensor_t tensor = {
            .key = (uint64_t)PULL << 32, .data = memories[f], .bytes = tensor_bytes};
        int n;
        if (count(what == RECV))
            counted_recv(contexts[f], &batch);
        else
            must(!stepaf_recv(contexts[f], STEPAF_FROM_ANY, 0, 1000000, &batch, 1, &n), "recv");
        verbs_device.n_requests = verbs_device.n_doorbells = 0; /* what tells of receives */
        if (count(what == RESPOND))
            counted_respond(batch, &tensor);
        else
            must(!stepaf_respond(batch, &tensor, 1, STEPAF_RESPOND_RELEASE, NULL), "respond");
        if (!tells_times)
            expect(1, 1, "the requests of an answer");
    }
    if (count(what == WAIT))
        counted_wait(request);
    else
        must(!stepaf_wait(request, 1000000), "wait");
    (void)count(false);
}

static void measure(void)
{
    static const char *const names[] = {
        [START] = "start", [WAIT] = "wait", [RECV] = "recv", [RESPOND] = "respond"};

    open_job();
    for (int i = 0; i < WARM_UP; i++)
        operate(NOTHING);
    for (int what = START; what <= RESPOND; what++) {
        for (int i = 0; i < OPERATIONS; i++)
            operate((enum what)what);
        counts_end(names[what]);
    }
    close_job();
}

/* ---- what metrics take ---- */

enum { ROUNDS = 300, TIMED = 1000 };

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Nanoseconds of an operation, in one go: where nothing has interrupted it, the least of many. */
static double time_job(const char *metrics)
{
    setenv("STEPAF_METRICS", metrics, 1);
    open_job();
    for (int i = 0; i < TIMED; i++)
        operate(NOTHING);
    int64_t began = now_ns();
    for (int i = 0; i < TIMED; i++)
        operate(NOTHING);
    int64_t took = now_ns() - began;
    close_job();
    return (double)took / TIMED;
}

static void time_metrics(bool with_times)
{
    double least[2] = {1e9, 1e9};

    tells_times = with_times;
    if (with_times)
        setenv("STEPAF_TIMES_US", "0", 1);
    n_ffn = n_tensors = 1;
    tensor_bytes = 64;
    for (int i = 0; i < 2 * ROUNDS; i++) {
        double ns = time_job(i % 2 ? "on" : "off");
        if (ns < least[i % 2])
            least[i % 2] = ns;
    }
    printf(
        "an operation, both ranks, answers with%s times: %.1f ns, with metrics on %.1f ns: %+.1f\n",
        with_times ? "" : "out", least[0], least[1], least[1] - least[0]);
}

int main(int argc, char **argv)
{
    static const struct {
        int n_tensors;
        size_t bytes;
    } cases[] = {{1, 64}, {1, 1 << 13}, {4, 1 << 13}};

    setenv("STEPAF_TRANSPORTS", "verbs", 1);
    /* Under callgrind everything takes long: answers would tell that. */
    setenv("STEPAF_TIMES_US", "3600000000", 1);
    setenv("STEPAF_NET_DEVICES", "fake0", 1);
    set_provider();
    if (argc > 1 && !strcmp(argv[1], "time")) {
        time_metrics(false);
        time_metrics(true);
        return 0;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (n_ffn = 1; n_ffn <= FFN_MAX; n_ffn *= 2) {
            n_tensors = cases[i].n_tensors;
            tensor_bytes = cases[i].bytes;
            measure();
        }
    return 0;
}
