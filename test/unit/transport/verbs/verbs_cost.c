/* SPDX-License-Identifier: Apache-2.0 */
/* What RDMA costs a rank in instructions, on made-up devices. Without callgrind the program checks
 * what it can count itself: work requests, and calls of the device. "verbs_cost some" does what
 * ofi_cost and ucx_cost do.
 *
 * "verbs_cost time" needs no callgrind: it prints how many nanoseconds an operation of one FFN rank
 * takes at each side, with the device's work and four readings of the clock, where trace, verdicts
 * and metrics are off, and how many more where they are on, one by one and all together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/time.h"
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

static uint64_t began, took[2]; /* ticks: a step; of an attention rank's steps and an FFN rank's */

static void begin_step(enum cost_step step)
{
    if (step == COST_START || step == COST_RESPOND) /* behind a receive: what tells of receives */
        verbs_device.n_requests = verbs_device.n_doorbells = 0;
    began = stepaf_ticks();
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
    took[step == COST_RECV || step == COST_RESPOND] += stepaf_ticks() - began;
    if (step == COST_START)
        expect(cost_n_tensors * cost_n_ffn, cost_n_ffn, "the requests of a start");
    if (step == COST_RESPOND && !tells_times)
        expect(1, 1, "the requests of an answer");
}

/* ---- what is switched on takes ---- */

enum { ROUNDS = 60, TIMED_WARM_UP = 20000, TIMED_BLOCKS = 20, TIMED = 500 };

/* What may be switched on; the first is what the others are compared with. */
static const struct cost_setting {
    const char *name, *trace, *verdict, *metrics;
} settings[] = {{"all off", "off", "off", "off"},       {"trace", "on", "off", "off"},
                {"metrics", "off", "off", "on"},        {"trace, metrics", "on", "off", "on"},
                {"trace, verdicts", "on", "on", "off"}, {"all on", "on", "on", "on"}};

enum { SETTINGS = sizeof(settings) / sizeof(settings[0]) };

/* Ticks of TIMED operations at each side: where nothing has interrupted them, the least of many. */
static void time_job(const struct cost_setting *setting, uint64_t least[2])
{
    setenv("STEPAF_TRACE", setting->trace, 1);
    setenv("STEPAF_VERDICT", setting->verdict, 1);
    setenv("STEPAF_METRICS", setting->metrics, 1);
    cost_open_job();
    for (int i = 0; i < TIMED_WARM_UP; i++) /* until verdicts have learnt what is usual */
        cost_operate(COST_NOTHING);
    for (int block = 0; block < TIMED_BLOCKS; block++) {
        took[0] = took[1] = 0;
        for (int i = 0; i < TIMED; i++)
            cost_operate(COST_NOTHING);
        for (int side = 0; side < 2; side++)
            if (took[side] < least[side])
                least[side] = took[side];
    }
    cost_close_job();
}

static void time_settings(bool with_times)
{
    uint64_t least[SETTINGS][2];
    struct stepaf_clock clock;
    double ns[SETTINGS][2];

    tells_times = with_times;
    setenv("STEPAF_TIMES_US", with_times ? "0" : "3600000000", 1);
    cost_n_ffn = cost_n_tensors = 1;
    cost_bytes = 64;
    memset(least, 0xff, sizeof(least));
    for (int i = 0; i < SETTINGS * ROUNDS; i++)
        time_job(&settings[i % SETTINGS], least[i % SETTINGS]);
    stepaf_clock_calibrate(&clock);
    printf("ns an operation, answers with%s times:\n%-16s %10s %10s\n", with_times ? "" : "out", "",
           "attention", "FFN");
    for (int i = 0; i < SETTINGS; i++) {
        for (int side = 0; side < 2; side++)
            ns[i][side] = (double)least[i][side] * 1e3 / clock.ticks_per_us / TIMED;
        if (i)
            printf("%-16s %+10.1f %+10.1f\n", settings[i].name, ns[i][0] - ns[0][0],
                   ns[i][1] - ns[0][1]);
        else
            printf("%-16s %10.1f %10.1f\n", settings[i].name, ns[0][0], ns[0][1]);
    }
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
        time_settings(false);
        time_settings(true);
        return 0;
    }
    if (argc > 1)
        cost_measure_some();
    else
        cost_measure_all();
    return 0;
}
