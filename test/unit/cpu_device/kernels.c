/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"

#include <sched.h>
#include <stdbool.h>
#include <string.h>

#include "base/time.h"

static uint64_t *words_of(uint8_t *head)
{
    return (uint64_t *)(void *)(head + STEPAF_HEAD_TELLS);
}

/* What says that a group of pieces is there. The rest is the tensor's bytes as they are: the two ends
 * agree, which is enough. */
static uint64_t *flag_of(uint8_t *group)
{
    return (uint64_t *)(void *)(group + STEPAF_GROUP_DATA);
}

static uint64_t stamp_of(const struct stepaf_flow *flow, uint32_t n)
{
    return stepaf_stamp(flow->epoch, n);
}

static bool has_failed(const struct stepaf_flow *flow)
{
    return __atomic_load_n(flow->failed, __ATOMIC_ACQUIRE) != 0;
}

static void write_head(const struct stepaf_lane *lane, uint64_t stamp)
{
    uint64_t *words = words_of(lane->head);

    if (lane->way == STEPAF_WAY_HEAD)
        memcpy(lane->head, lane->data, lane->bytes);
    words[0] = lane->bytes;
    __atomic_store_n(&words[1], stamp, __ATOMIC_RELEASE);
}

static void send_pieces(const struct stepaf_lane *lane, uint64_t stamp)
{
    uint32_t at = 0;

    write_head(lane, stamp);
    for (uint8_t *group = lane->body; at < lane->bytes; group += STEPAF_GROUP_BYTES) {
        uint32_t left = lane->bytes - at;
        memcpy(group, lane->data + at, left < STEPAF_GROUP_DATA ? left : STEPAF_GROUP_DATA);
        __atomic_store_n(flag_of(group), 1, __ATOMIC_RELEASE);
        at += STEPAF_GROUP_DATA;
    }
}

static void run_send(const struct stepaf_flow *flow, uint32_t blocks)
{
    uint32_t n = flow->counts[1] + 1;

    if (has_failed(flow))
        return;
    for (uint32_t i = 0; i < flow->n_lanes; i++) {
        const struct stepaf_lane *lane = &flow->lanes[i];
        if (lane->copied)
            continue;
        if (lane->way == STEPAF_WAY_PIECES) {
            send_pieces(lane, stamp_of(flow, n));
            continue;
        }
        if (lane->way != STEPAF_WAY_HEAD && lane->bytes)
            memcpy(lane->body, lane->data, lane->bytes);
        write_head(lane, stamp_of(flow, n));
    }
    for (uint32_t b = 0; b < blocks; b++)
        flow->counts[1 + b] = n;
}

static void note_fault(const struct stepaf_flow *flow, uint32_t fault, uint32_t peer)
{
    flow->watch->peer = peer;
    flow->watch->slot = flow->slot;
    __atomic_store_n(&flow->watch->fault, fault, __ATOMIC_RELEASE);
    __atomic_store_n(flow->failed, 1, __ATOMIC_RELEASE);
}

static uint64_t word_of(const uint8_t *head)
{
    return __atomic_load_n(&words_of((uint8_t *)head)[1], __ATOMIC_ACQUIRE);
}

/* By its own head, or by that where TOLD_ALL comes to. */
static bool is_told(const struct stepaf_flow *flow, const void *at, uint64_t stamp)
{
    const struct stepaf_lane *lane = at;
    uint64_t its = word_of(lane->head);

    return its == stamp || (uint32_t)its >= STEPAF_TOLD_ALL ||
           (lane->copied &&
            (uint32_t)word_of(flow->lanes[lane->copied - 1].head) == STEPAF_TOLD_ALL);
}

static bool is_there(const struct stepaf_flow *flow, const void *group, uint64_t stamp)
{
    (void)flow;
    (void)stamp;
    return __atomic_load_n(flag_of((uint8_t *)group), __ATOMIC_ACQUIRE) != 0;
}

/* Wait until a head or a group has come. False: given up. */
static bool await(const struct stepaf_flow *flow,
                  bool (*has_come)(const struct stepaf_flow *, const void *, uint64_t),
                  const void *at, uint64_t stamp, uint32_t peer)
{
    int64_t began = stepaf_monotonic_ns();

    while (!has_come(flow, at, stamp)) {
        if (has_failed(flow))
            return false;
        if (__atomic_load_n(&flow->watch->abort, __ATOMIC_ACQUIRE)) {
            note_fault(flow, STEPAF_FAULT_ABORTED, peer);
            return false;
        }
        if (flow->timeout_ns && stepaf_monotonic_ns() - began > (int64_t)flow->timeout_ns) {
            note_fault(flow, STEPAF_FAULT_TIMEOUT, peer);
            return false;
        }
        sched_yield();
    }
    return true;
}

static bool take_pieces(const struct stepaf_flow *flow, const struct stepaf_lane *lane,
                        uint32_t bytes)
{
    uint8_t *group = lane->body;

    for (uint32_t at = 0; at < bytes; at += STEPAF_GROUP_DATA, group += STEPAF_GROUP_BYTES) {
        uint32_t left = bytes - at;
        if (!await(flow, is_there, group, 0, lane->peer))
            return false;
        memcpy(lane->data + at, group, left < STEPAF_GROUP_DATA ? left : STEPAF_GROUP_DATA);
        *flag_of(group) = 0;
    }
    return true;
}

static void run_gate(const struct stepaf_flow *flow)
{
    uint32_t n = flow->counts[0] + 1;

    if (has_failed(flow))
        return;
    for (uint32_t i = 0; i < flow->n_lanes; i++) {
        const struct stepaf_lane *lane = &flow->lanes[i];
        uint64_t stamp = stamp_of(flow, n);
        if (!await(flow, is_told, lane, stamp, lane->peer))
            return;
        uint64_t its = word_of(lane->head), bytes = lane->planned;
        if (its == stamp)
            bytes = words_of(lane->head)[0];
        else if ((uint32_t)its >= STEPAF_TOLD_ALL)
            bytes = its >> 32;
        if (bytes > lane->bytes)
            bytes = lane->bytes;
        flow->landed[i] = (uint32_t)bytes;
        if (lane->way == STEPAF_WAY_HEAD)
            memcpy(lane->data, lane->head, bytes);
        if (lane->way == STEPAF_WAY_PIECES && flow->gate_takes &&
            !take_pieces(flow, lane, (uint32_t)bytes))
            return;
    }
    for (uint32_t i = 0; i < flow->n_lanes; i++)
        if ((uint32_t)word_of(flow->lanes[i].head) >= STEPAF_TOLD_ALL)
            words_of(flow->lanes[i].head)[1] = 0;
    flow->counts[0] = n;
}

static void run_unpack(const struct stepaf_flow *flow)
{
    if (has_failed(flow))
        return;
    for (uint32_t i = 0; i < flow->n_lanes; i++) {
        const struct stepaf_lane *lane = &flow->lanes[i];
        uint32_t bytes = flow->landed[i];
        if (lane->way == STEPAF_WAY_INLET && bytes)
            memcpy(lane->data, lane->body, bytes);
        if (lane->way == STEPAF_WAY_PIECES && !flow->gate_takes && !take_pieces(flow, lane, bytes))
            return;
    }
}

void cpu_kernel_run(enum stepaf_kernel kernel, const struct stepaf_flow *flow, uint32_t blocks)
{
    if (kernel == STEPAF_KERNEL_SEND)
        run_send(flow, blocks);
    else if (kernel == STEPAF_KERNEL_GATE)
        run_gate(flow);
    else
        run_unpack(flow);
}
