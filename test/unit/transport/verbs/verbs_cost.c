/* SPDX-License-Identifier: Apache-2.0 */
/* What RDMA costs a rank in instructions, on made-up devices. Without callgrind the program checks
 * what it can count itself: work requests, and calls of the device. "verbs_cost some" does what
 * ofi_cost and ucx_cost do.
 *
 * "verbs_cost time" needs no callgrind: it prints by how many nanoseconds an operation of one FFN
 * rank, with both ranks' work and the device's, takes longer where STEPAF_METRICS is on than where
 * it is off. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <time.h>

#include "transport/cost_job.h"
#include "verbs_device.h"

static bool tells_times; /* answers do: that takes more */
static struct stepaf_verbs_provider provider;

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

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc_p)
{
    int got = verbs_device_provider.poll_cq(cq, n, wc_p);

    cost_give_way();
    return got;
}

static void count_device(bool on)
{
    provider.post_send = on ? counted_post_send : verbs_device_provider.post_send;
    provider.post_recv = on ? counted_post_recv : verbs_device_provider.post_recv;
    provider.poll_cq = on ? counted_poll_cq : poll_cq;
}

/* ---- what is checked ---- */

static void begin_step(enum cost_step step)
{
    if (step == COST_START || step == COST_RESPOND) /* behind a receive: what tells of receives */
        verbs_device.n_requests = verbs_device.n_doorbells = 0;
}

/* A step has cost so many work requests and calls of the device. */
static void expect(int n_requests, int n_doorbells, const char *what)
{
    cost_must(verbs_device.n_requests == (unsigned)n_requests &&
                  verbs_device.n_doorbells == (unsigned)n_doorbells,
              what);
}

static void end_step(enum cost_step step)
{
    if (step == COST_START)
        expect(cost_n_tensors * cost_n_ffn, cost_n_ffn, "the requests of a start");
    if (step == COST_RESPOND && !tells_times)
        expect(1, 1, "the requests of an answer");
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
    cost_open_job();
    for (int i = 0; i < TIMED; i++)
        cost_operate(COST_NOTHING);
    int64_t began = now_ns();
    for (int i = 0; i < TIMED; i++)
        cost_operate(COST_NOTHING);
    int64_t took = now_ns() - began;
    cost_close_job();
    return (double)took / TIMED;
}

static void time_metrics(bool with_times)
{
    double least[2] = {1e9, 1e9};

    tells_times = with_times;
    setenv("STEPAF_TIMES_US", with_times ? "0" : "3600000000", 1);
    cost_n_ffn = cost_n_tensors = 1;
    cost_bytes = 64;
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
    static const struct cost_carrier device = {
        .count = count_device, .begin = begin_step, .end = end_step};

    setenv("STEPAF_TRANSPORTS", "verbs", 1);
    setenv("STEPAF_NET_DEVICES", "fake0", 1);
    verbs_device_reset();
    provider = verbs_device_provider;
    stepaf_verbs_provider = &provider;
    cost_carrier = &device;
    if (argc > 1 && !strcmp(argv[1], "time")) {
        time_metrics(false);
        time_metrics(true);
        return 0;
    }
    if (argc > 1)
        cost_measure_some();
    else
        cost_measure_all();
    return 0;
}
