/* SPDX-License-Identifier: Apache-2.0 */
/* What src/device/cuda/kernels_times.cuh does. The device's clock is far from the host's, and runs
 * faster. */
#include <sched.h>

#include "base/time.h"
#include "cpu_device.h"
#include "kernels.h"

enum { AHEAD_S = 7777, FASTER_PPM = 40 };

uint64_t cpu_device_now_ns(void)
{
    int64_t now = stepaf_monotonic_ns();

    return (uint64_t)(now + now / 1000000 * FASTER_PPM + AHEAD_S * INT64_C(1000000000));
}

static void leave_word(const struct stepaf_timestamp_args *args, uint32_t kind, uint32_t op,
                       uint32_t peer, uint64_t word)
{
    uint32_t n = __atomic_fetch_add(args->n_timestamps, 1, __ATOMIC_RELAXED);
    struct stepaf_timestamp *at = &args->ring[n & args->mask];

    /* A GPU stores both at once. */
    __atomic_store_n(&at->what, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&at->time, word, __ATOMIC_SEQ_CST);
    __atomic_store_n(&at->what,
                     (uint64_t)peer << STEPAF_TIMESTAMP_PEER |
                         (uint64_t)kind << STEPAF_TIMESTAMP_KIND |
                         (uint64_t)(op % STEPAF_TIMESTAMP_OPS) << STEPAF_TIMESTAMP_OP |
                         (n + 1) % STEPAF_TIMESTAMP_NUMBERS,
                     __ATOMIC_RELEASE);
}

static void leave_timestamp(const struct stepaf_timestamp_args *args, uint32_t kind, uint32_t op,
                            uint32_t peer, uint64_t time_ns)
{
    leave_word(args, kind, op, peer,
               time_ns % (UINT64_C(1) << STEPAF_TIMESTAMP_TIME_BITS) |
                   (uint64_t)(op / STEPAF_TIMESTAMP_OPS) << STEPAF_TIMESTAMP_TIME_BITS);
}

static uint32_t op_of(const struct stepaf_timestamp_args *args, uint32_t n)
{
    return n * args->depth + args->slot;
}

static bool has_failed(const struct stepaf_timestamp_args *args)
{
    return __atomic_load_n(args->failed, __ATOMIC_ACQUIRE) != 0;
}

static void take_time(const struct stepaf_timestamp_args *args)
{
    uint64_t now = cpu_device_now_ns();

    if (has_failed(args))
        return;
    uint32_t op = op_of(args, (*args->n_ops)++);
    leave_timestamp(args, args->kind, op, 0, now);
    if (args->named)
        leave_word(args, STEPAF_TIMESTAMP_NAME, op, 0, args->name);
}

static uint64_t told_by(const uint8_t *head)
{
    return __atomic_load_n((const uint64_t *)(const void *)(head + STEPAF_HEAD_TELLS) + 1,
                           __ATOMIC_ACQUIRE);
}

static bool has_come(const struct stepaf_timestamp_head *head, uint64_t stamp)
{
    uint64_t its = told_by(head->head);

    return its == stamp || (uint32_t)its >= STEPAF_TOLD_ALL ||
           (head->leader && (uint32_t)told_by(head->leader) == STEPAF_TOLD_ALL);
}

/* False: given up. */
static bool await_peer(const struct stepaf_timestamp_args *args, uint32_t at, uint64_t stamp,
                       bool *at_once)
{
    struct stepaf_kernel_args wait = {
        .failed = args->failed, .watch = args->watch, .slot = args->slot};
    int64_t began = stepaf_monotonic_ns();

    *at_once = true;
    for (uint32_t i = 0; i < args->n_each; i++)
        while (!has_come(&args->heads[at * args->n_each + i], stamp)) {
            *at_once = false;
            if (has_failed(args))
                return false;
            bool aborted = __atomic_load_n(&args->watch->abort, __ATOMIC_ACQUIRE);
            if (aborted || (uint64_t)(stepaf_monotonic_ns() - began) > args->timeout_ns) {
                cpu_kernel_note_fault(&wait, aborted ? STEPAF_FAULT_ABORTED : STEPAF_FAULT_TIMEOUT,
                                      args->peers[at]);
                return false;
            }
            sched_yield();
        }
    return true;
}

/* One peer after the other, as there is one thread: a peer's time may be that of one before it. */
static void note_arrivals(const struct stepaf_timestamp_args *args)
{
    uint64_t now = cpu_device_now_ns(), stamp = stepaf_stamp(args->epoch, *args->counts + 1);

    if (has_failed(args))
        return;
    uint32_t op = op_of(args, *args->n_ops - !args->begins);
    if (args->begins) {
        ++*args->n_ops;
        leave_timestamp(args, STEPAF_TIMESTAMP_WAIT_BEGAN, op, 0, now);
    }
    for (uint32_t at = 0; at < args->n_peers; at++) {
        bool at_once;
        if (!await_peer(args, at, stamp, &at_once))
            return;
        leave_timestamp(args, at_once ? STEPAF_TIMESTAMP_WAS_THERE : STEPAF_TIMESTAMP_ARRIVED, op,
                        args->peers[at], cpu_device_now_ns());
    }
}

void cpu_kernel_take_time(const void *args)
{
    take_time(args);
}

void cpu_kernel_note_arrivals(const void *args)
{
    note_arrivals(args);
}

void cpu_kernel_tell_time(const void *its)
{
    const struct stepaf_clock_args *args = its;
    uint64_t began = cpu_device_now_ns(), now = began;
    uint32_t told = args->before;

    args->answer->time = now;
    __atomic_store_n(&args->answer->what, told, __ATOMIC_RELEASE);
    while (now - began < args->timeout_ns) {
        uint32_t asked = __atomic_load_n(args->asked, __ATOMIC_ACQUIRE);
        now = cpu_device_now_ns();
        if (asked == STEPAF_CLOCK_STOP)
            break;
        if (asked == told) {
            sched_yield();
            continue;
        }
        __atomic_store_n(&args->answer->time, now, __ATOMIC_RELAXED);
        __atomic_store_n(&args->answer->what, asked, __ATOMIC_RELEASE);
        told = asked;
    }
    __atomic_store_n(&args->answer->what, STEPAF_CLOCK_STOP, __ATOMIC_RELEASE);
}
