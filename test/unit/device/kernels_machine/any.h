/* SPDX-License-Identifier: Apache-2.0 */
/* One end that takes the batch of any of some peers, or answers it. */
#ifndef TEST_KERNELS_ANY_H
#define TEST_KERNELS_ANY_H

#include "exchange.h"

enum { PEERS = 3, MAX_DEPTH = 2, RING = 16 /* more than twice as many batches as there can be */ };

struct Any {
    stepaf_any_args args;
    std::vector<stepaf_any_tensor> tensors;
    std::vector<uint32_t> counts, done, landed;
    uint32_t failed[2];
    stepaf_gpu_watch watch;
    unsigned n_blocks, gate_threads;
};

inline bool has_chunks(const Any &any)
{
    for (const stepaf_any_tensor &entry : any.tensors)
        if (entry.tensor.proto == STEPAF_PROTO_CHUNKS)
            return true;
    return false;
}

inline void send_any(const Any &any)
{
    has_chunks(any) ? stepaf_send_any_chunks(any.args) : stepaf_send_any(any.args);
}

inline void unpack_any(const Any &any)
{
    has_chunks(any) ? stepaf_unpack_any_chunks(any.args) : stepaf_unpack_any(any.args);
}

inline stepaf_kernel_tensor any_tensor(const Exchange &slot, bool sends, unsigned i)
{
    return (sends ? slot.sender : slot.receiver)->args.tensors[i];
}

/* @a slots: peer by peer, @a depth each, which lie evenly apart. The first peer's tensors are the
 * largest. */
inline std::unique_ptr<Any> make_any(const std::vector<std::unique_ptr<Exchange>> &slots,
                                     uint8_t depth, bool sends, stepaf_any_entry *ring,
                                     stepaf_any_next *next, uint32_t *origin)
{
    std::unique_ptr<Any> any(new Any());
    stepaf_any_args &args = any->args;
    const End &model = sends ? *slots[0]->sender : *slots[0]->receiver;
    uint8_t n_each = static_cast<uint8_t>(slots[0]->tensors.size());

    for (uint16_t p = 0; p < PEERS; p++)
        for (unsigned i = 0; i < n_each; i++) {
            stepaf_kernel_tensor tensor = any_tensor(*slots[p * depth], sends, i);
            stepaf_kernel_tensor last = any_tensor(*slots[p * depth + depth - 1], sends, i);
            tensor.peer = p;
            tensor.copied = static_cast<uint8_t>(tensor.copied ? tensor.copied + p * n_each : 0);
            any->tensors.push_back({tensor, static_cast<uint32_t>(last.head - tensor.head),
                                    static_cast<uint32_t>(last.body - tensor.body),
                                    static_cast<uint32_t>(last.data - tensor.data)});
        }
    any->counts.resize(model.n_blocks + 1);
    any->done.resize(STEPAF_KERNEL_TENSORS);
    any->landed.resize(STEPAF_KERNEL_TENSORS * MAX_DEPTH);
    any->n_blocks = model.n_blocks;
    any->gate_threads = (PEERS * n_each * 8 + 31) / 32 * 32;
    if (any->gate_threads < model.gate_threads)
        any->gate_threads = model.gate_threads;
    args = {};
    args.counts = any->counts.data();
    args.done = any->done.data();
    args.landed = any->landed.data();
    args.failed = any->failed;
    args.watch = &any->watch;
    args.tensors = any->tensors.data();
    args.ring = ring;
    args.next = next;
    args.origin = origin;
    args.epoch = EPOCH;
    args.ring_mask = RING - 1;
    args.landed_stride = STEPAF_KERNEL_TENSORS;
    args.n_peers = PEERS;
    args.n_each = n_each;
    args.depth = depth;
    args.aligned = model.args.aligned;
    args.gate_takes = model.args.gate_takes;
    args.gate_ends = model.args.gate_ends;
    for (unsigned i = 0; i < n_each; i++)
        args.shares[i] = {nullptr, UINT32_MAX, model.args.tensors[i].first,
                          model.args.tensors[i].n};
    return any;
}

#endif
