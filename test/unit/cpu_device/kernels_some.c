/* SPDX-License-Identifier: Apache-2.0 */
/* What src/device/cuda/kernels_some.cuh does of waiting, by one thread. */
#include <sched.h>

#include "base/time.h"
#include "cpu_device.h"
#include "kernels.h"

/* Peers all of whose tensors are told of. */
static uint64_t find_whole(const struct stepaf_kernel_args *args, uint64_t stamp)
{
    uint32_t n_each = args->awaited->n_each;
    uint64_t whole = 0;

    for (uint32_t p = 0; p < args->n_tensors / n_each; p++) {
        bool is_whole = true;
        for (uint32_t i = p * n_each; i < (p + 1) * n_each; i++)
            is_whole = is_whole && cpu_kernel_is_told(args, &args->tensors[i], stamp);
        whole |= (uint64_t)is_whole << p;
    }
    return whole;
}

static bool give_up(const struct stepaf_kernel_args *args, uint64_t peers)
{
    uint64_t gone = __atomic_or_fetch(&args->awaited->gone, peers, __ATOMIC_ACQ_REL);
    uint32_t n_peers = args->n_tensors / args->awaited->n_each;

    return n_peers - (uint32_t)__builtin_popcountll(gone) >= args->awaited->need;
}

static bool fail(const struct stepaf_kernel_args *args, uint32_t fault, uint64_t peers)
{
    cpu_kernel_note_fault(args, fault, (uint32_t)__builtin_ctzll(peers));
    return false;
}

/* Wait for the @a wanted; enough of them do where @a patience_ns says how long all are waited for,
 * negative: all. Whoever has come then is in *whole_p. False: the plan is over. */
static bool await_some(const struct stepaf_kernel_args *args, uint64_t stamp, uint64_t wanted,
                       int64_t patience_ns, uint64_t *whole_p)
{
    struct stepaf_some *some = args->awaited;
    int64_t began = stepaf_monotonic_ns();
    int64_t deadline = (int64_t)(patience_ns < 0 ? args->timeout_ns / 2 : args->timeout_ns);

    for (;; sched_yield()) {
        uint64_t asked = wanted & ~__atomic_load_n(&some->gone, __ATOMIC_ACQUIRE);
        uint64_t whole = *whole_p = find_whole(args, stamp) & asked, missing = asked & ~whole;
        int64_t waited = stepaf_monotonic_ns() - began;
        if (!missing || (patience_ns >= 0 && waited >= patience_ns &&
                         (uint32_t)__builtin_popcountll(whole) >= some->need))
            return true;
        if (cpu_kernel_has_failed(args))
            return false;
        if (__atomic_load_n(&args->watch->abort, __ATOMIC_ACQUIRE))
            return fail(args, STEPAF_FAULT_ABORTED, missing);
        uint64_t lost = __atomic_load_n(&args->watch->lost, __ATOMIC_ACQUIRE) & missing;
        if (lost && !give_up(args, lost))
            return fail(args, STEPAF_FAULT_ABORTED, lost);
        missing &= ~lost;
        if (!missing || !deadline || waited < deadline)
            continue;
        if (patience_ns >= 0 || !give_up(args, missing))
            return fail(args, STEPAF_FAULT_TIMEOUT, missing);
    }
}

static void take(const struct stepaf_kernel_args *args, uint64_t stamp, uint64_t chosen)
{
    for (uint32_t i = 0; i < args->n_tensors; i++) {
        args->landed[i] = 0;
        if (chosen >> (i / args->awaited->n_each) & 1)
            cpu_kernel_take_head(args, i, stamp);
    }
    for (uint32_t i = 0; i < args->n_tensors; i++)
        if (chosen >> (i / args->awaited->n_each) & 1)
            cpu_kernel_clear_mark(args, i);
}

void cpu_kernel_gate_some(const struct stepaf_kernel_args *args)
{
    uint32_t n = args->counts[0] + 1, n_peers = args->n_tensors / args->awaited->n_each;
    uint64_t all = n_peers < 64 ? ((uint64_t)1 << n_peers) - 1 : UINT64_MAX, chosen;
    struct stepaf_some_slot *slot = &args->awaited->slots[args->slot];
    uint64_t stamp = stepaf_stamp(args->epoch, n);

    if (cpu_kernel_has_failed(args) ||
        !await_some(args, stamp, all, (int64_t)args->awaited->patience_ns, &chosen))
        return;
    take(args, stamp, chosen);
    slot->mask = slot->now = chosen;
    slot->given_up = __atomic_load_n(&args->awaited->gone, __ATOMIC_ACQUIRE);
    slot->late = __atomic_load_n(&args->awaited->late, __ATOMIC_RELAXED);
    slot->missing = all & ~slot->given_up & ~chosen;
    args->watch->answers[args->slot].given_up = slot->given_up;
    __atomic_store_n(&args->watch->answers[args->slot].mask, chosen, __ATOMIC_RELEASE);
    args->counts[0] = n;
}

void cpu_kernel_settle(const struct stepaf_kernel_args *args)
{
    struct stepaf_some_slot *slot = &args->awaited->slots[args->slot];
    uint64_t stamp = stepaf_stamp(args->epoch, args->counts[0]), chosen;

    slot->now = 0;
    if (!slot->missing || cpu_kernel_has_failed(args) ||
        !await_some(args, stamp, slot->missing, -1, &chosen))
        return;
    take(args, stamp, chosen);
    slot->now = chosen;
    slot->missing = 0;
    __atomic_add_fetch(&args->awaited->late, (uint64_t)__builtin_popcountll(chosen),
                       __ATOMIC_RELAXED);
}
