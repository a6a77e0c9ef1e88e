/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of some tensors, as the core would make them. */
#ifndef TEST_KERNELS_EXCHANGE_H
#define TEST_KERNELS_EXCHANGE_H

#include "machine.h"

struct Tensor {
    uint32_t room, planned;
    stepaf_proto proto;
    unsigned blocks; /* that share it, each way */
    bool copied;
    unsigned skew; /* from a multiple of 16 */
};

enum { EPOCH = 7, BEYOND = 64, POISON = 0xa5 };

struct End {
    stepaf_kernel_args args;
    std::vector<uint32_t> counts, done, landed;
    uint32_t failed[2];
    stepaf_gpu_watch watch;
    unsigned n_blocks, gate_threads;
};

inline uint32_t groups(uint32_t bytes)
{
    return (bytes + STEPAF_GROUP_DATA - 1) / STEPAF_GROUP_DATA;
}

inline bool has_chunks(const stepaf_kernel_args &args)
{
    for (uint32_t i = 0; i < args.n_tensors; i++)
        if (stepaf_proto_has_chunks(args.tensors[i].proto) ||
            args.tensors[i].proto == STEPAF_PROTO_RDMA)
            return true;
    return false;
}

/* As the host launches them. */
inline void send(const stepaf_kernel_args &args)
{
    has_chunks(args) ? stepaf_send_chunks(args) : stepaf_send(args);
}

inline void unpack(const stepaf_kernel_args &args)
{
    has_chunks(args) ? stepaf_unpack_chunks(args) : stepaf_unpack(args);
}

/* A head, and the flags of parts. */
inline size_t flags_room(uint32_t bytes, uint32_t part)
{
    return STEPAF_HEAD_BYTES + static_cast<size_t>(stepaf_parts(bytes, part)) * STEPAF_PART_TELLS;
}

struct Exchange {
    std::vector<Tensor> tensors;
    std::vector<std::vector<uint8_t>> mailboxes, send_bufs, sources, places;
    std::unique_ptr<End> sender, receiver;

    explicit Exchange(std::vector<Tensor> its);
    void operate(bool varied);
    stepaf_kernel_args fill(bool varied);
    void begin_send(const stepaf_kernel_args &args);
    void begin_receive();
    void carry(unsigned i, const stepaf_kernel_args &sent) const;
    void verify(const stepaf_kernel_args &sent, const uint32_t *landed) const;

  private:
    End *make_end(bool sends);
};

inline uint8_t *aligned(std::vector<uint8_t> &bytes)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(bytes.data());

    return bytes.data() + (-at & 127);
}

Exchange::Exchange(std::vector<Tensor> its) : tensors(std::move(its))
{
    for (const Tensor &tensor : tensors) {
        size_t pieces = static_cast<size_t>(groups(tensor.room)) * STEPAF_GROUP_BYTES;
        size_t chunks = static_cast<size_t>(stepaf_chunks_room(tensor.room));
        size_t parts = flags_room(tensor.room, stepaf_part_bytes(tensor.room)) + tensor.room;
        mailboxes.emplace_back(STEPAF_HEAD_BYTES + std::max({pieces, chunks, parts}) + 256, 0);
        send_bufs.emplace_back(mailboxes.back().size(), 0);
        sources.emplace_back(tensor.room + 256, 0);
        places.emplace_back(tensor.room + BEYOND + 256, static_cast<uint8_t>(POISON));
    }
    sender.reset(make_end(true));
    receiver.reset(make_end(false));
}

End *Exchange::make_end(bool sends)
{
    End *end = new End();
    stepaf_kernel_args &args = end->args;
    uint32_t n_groups = 0;

    end->done.resize(STEPAF_KERNEL_TENSORS);
    end->landed.resize(STEPAF_KERNEL_TENSORS);
    args.epoch = EPOCH;
    args.aligned = 1;
    uint8_t leader = 0;
    for (size_t i = 0; i < tensors.size(); i++) {
        const Tensor &tensor = tensors[i];
        stepaf_kernel_tensor &kernel_tensor = args.tensors[args.n_tensors++];
        uint8_t *mailbox = aligned(mailboxes[i]);
        kernel_tensor.proto = static_cast<uint8_t>(tensor.proto);
        kernel_tensor.head = mailbox;
        kernel_tensor.body = mailbox + STEPAF_HEAD_BYTES;
        if (tensor.proto == STEPAF_PROTO_ZCOPY && sends)
            kernel_tensor.body = aligned(places[i]) + tensor.skew;
        kernel_tensor.data = aligned(sends ? sources[i] : places[i]) + tensor.skew;
        kernel_tensor.bytes = sends ? tensor.planned : tensor.room;
        kernel_tensor.planned = tensor.planned;
        if (tensor.proto == STEPAF_PROTO_CHUNKS)
            kernel_tensor.chunk = stepaf_chunk_bytes(tensor.room);
        if (tensor.proto == STEPAF_PROTO_PARTS) {
            kernel_tensor.chunk = stepaf_part_bytes(tensor.room);
            kernel_tensor.head = sends ? aligned(send_bufs[i]) : mailbox;
            kernel_tensor.body = kernel_tensor.head + flags_room(tensor.room, kernel_tensor.chunk);
            kernel_tensor.body +=
                sends ? 0 : tensor.skew; /* as slots of the proxy's receive buffers may lie */
        }
        args.aligned = args.aligned && tensor.skew % 16 == 0;
        if (tensor.copied)
            leader = static_cast<uint8_t>(i + 1);
        if (tensor.proto == STEPAF_PROTO_LL)
            n_groups += groups(tensor.room);
    }
    args.gate_takes = n_groups && n_groups <= STEPAF_GATE_GROUPS;
    end->gate_threads = static_cast<unsigned>(tensors.size()) * 8;
    if (args.gate_takes && end->gate_threads < n_groups * STEPAF_WARP)
        end->gate_threads = n_groups * STEPAF_WARP;
    if (end->gate_threads > 512)
        end->gate_threads = 512;
    end->gate_threads = (end->gate_threads + 31) / 32 * 32;
    for (size_t i = 0; i < tensors.size(); i++) {
        const Tensor &tensor = tensors[i];
        stepaf_kernel_tensor &kernel_tensor = args.tensors[i];
        bool unpacks = tensor.proto == STEPAF_PROTO_BCOPY ||
                       stepaf_proto_has_chunks(static_cast<uint8_t>(tensor.proto)) ||
                       (tensor.proto == STEPAF_PROTO_LL && !args.gate_takes);
        kernel_tensor.copied = tensor.copied ? leader : 0;
        kernel_tensor.first = static_cast<uint16_t>(end->n_blocks);
        if (sends ? !tensor.copied : unpacks)
            kernel_tensor.n =
                static_cast<uint16_t>(tensor.proto == STEPAF_PROTO_INLINE ? 1 : tensor.blocks);
        end->n_blocks += kernel_tensor.n;
    }
    args.gate_ends = !end->n_blocks;
    end->counts.resize(end->n_blocks + 1);
    args.counts = end->counts.data();
    args.done = end->done.data();
    args.landed = end->landed.data();
    args.failed = end->failed;
    args.watch = &end->watch;
    return end;
}

inline uint8_t make_byte()
{
    uint64_t word = random_bits();

    return word % 4 ? static_cast<uint8_t>(word >> 8) : 0xff;
}

/* What copy engines do, piece by piece; then the stream's words. */
inline void copy_all(const stepaf_kernel_args &args, const stepaf_kernel_args &planned)
{
    bool all = true;

    for (uint32_t i = 0; i < args.n_tensors; i++) {
        const stepaf_kernel_tensor &kernel_tensor = args.tensors[i];
        all = all && (!kernel_tensor.copied || kernel_tensor.bytes == planned.tensors[i].bytes);
        for (uint32_t at = 0; kernel_tensor.copied && at < kernel_tensor.bytes; at += 64) {
            memcpy(kernel_tensor.body + at, kernel_tensor.data + at,
                   kernel_tensor.bytes - at < 64 ? kernel_tensor.bytes - at : 64);
            machine_yield();
        }
    }
    for (uint32_t i = 0; i < args.n_tensors; i++) {
        const stepaf_kernel_tensor &kernel_tensor = args.tensors[i];
        if (!kernel_tensor.copied || (all && kernel_tensor.copied != i + 1))
            continue;
        uint64_t word = static_cast<uint64_t>(kernel_tensor.bytes) << 32 |
                        (all ? STEPAF_TOLD_ALL : STEPAF_TOLD);
        memcpy(kernel_tensor.head + STEPAF_HEAD_TELLS + 8, &word, 8);
        machine_yield();
    }
}

/* New bytes, and as many as planned or fewer. */
stepaf_kernel_args Exchange::fill(bool varied)
{
    stepaf_kernel_args args = sender->args;

    for (size_t i = 0; i < tensors.size(); i++) {
        stepaf_kernel_tensor &kernel_tensor = args.tensors[i];
        if (varied)
            kernel_tensor.bytes = pick(kernel_tensor.bytes + 1);
        for (uint32_t at = 0; at < kernel_tensor.bytes; at++)
            kernel_tensor.data[at] = make_byte();
        memset(receiver->args.tensors[i].data, POISON, tensors[i].room + BEYOND);
    }
    return args;
}

/* The stamp that a head has. */
inline uint64_t its_last(const stepaf_kernel_tensor &kernel_tensor)
{
    uint64_t stamp;

    memcpy(&stamp, kernel_tensor.head + STEPAF_HEAD_TELLS + 8, sizeof(stamp));
    return stamp;
}

/* What the hosts of both ends do of PARTS: bring what is there, and tell of it; the head first. */
void Exchange::carry(unsigned i, const stepaf_kernel_args &sent) const
{
    const stepaf_kernel_tensor &from = sent.tensors[i], &to = receiver->args.tensors[i];
    uint64_t words[2], stamp;

    do {
        machine_yield();
        memcpy(words, from.head + STEPAF_HEAD_TELLS, sizeof(words));
    } while (words[1] == its_last(to));
    stamp = words[1];
    memcpy(to.head + STEPAF_HEAD_TELLS, words, sizeof(words));
    for (uint32_t part = 0; part < stepaf_parts(from.bytes, from.chunk); part++) {
        uint32_t at = part * from.chunk;
        do {
            machine_yield();
            memcpy(words, from.head + STEPAF_HEAD_BYTES + part * STEPAF_PART_TOLD, sizeof(words));
        } while (words[1] != stamp);
        memcpy(to.body + at, from.body + at, std::min(from.chunk, from.bytes - at));
        machine_yield();
        memcpy(to.head + STEPAF_HEAD_BYTES + part * STEPAF_PART_TELLS, words, sizeof(words));
    }
}

void Exchange::begin_send(const stepaf_kernel_args &args)
{
    for (unsigned i = 0; i < args.n_tensors; i++)
        if (args.tensors[i].proto == STEPAF_PROTO_PARTS)
            launch(1, 0, 1, [this, i, &args] { carry(i, args); });
    for (unsigned b = 0; b < sender->n_blocks; b++)
        launch(sender->n_blocks, b, STEPAF_WARP, [&args] { ::send(args); });
    launch(1, 0, 1, [this, &args] { copy_all(args, sender->args); });
}

/* Unpacking begins when the gate has seen the heads: some sending is still under way. */
inline void begin_receive(unsigned gate_threads, std::function<void()> gate, unsigned n_blocks,
                          std::function<void()> unpack)
{
    Block *first = launch(1, 0, gate_threads, std::move(gate));

    launch(1, 0, 1, [=] {
        while (!has_ended(*first))
            machine_yield();
        for (unsigned b = 0; b < n_blocks; b++)
            launch(n_blocks, b, STEPAF_WARP, unpack);
    });
}

void Exchange::begin_receive()
{
    const stepaf_kernel_args &args = receiver->args;

    ::begin_receive(
        receiver->gate_threads, [&args] { stepaf_gate(args); }, receiver->n_blocks,
        [&args] { ::unpack(args); });
}

void Exchange::verify(const stepaf_kernel_args &sent, const uint32_t *landed) const
{
    for (size_t i = 0; i < tensors.size(); i++) {
        const stepaf_kernel_tensor &kernel_tensor = sent.tensors[i];
        const uint8_t *came = receiver->args.tensors[i].data;
        if (receiver->failed[0] || landed[i] != kernel_tensor.bytes)
            fail("a size is wrong");
        for (uint32_t at = 0; at < kernel_tensor.bytes + BEYOND; at++)
            if (came[at] != (at < kernel_tensor.bytes ? kernel_tensor.data[at] : uint8_t{POISON})) {
                printf("FAIL: tensor %zu (%u bytes, way %d): byte %u is %u\n", i,
                       kernel_tensor.bytes, kernel_tensor.proto, at, came[at]);
                exit(1);
            }
    }
}

void Exchange::operate(bool varied)
{
    stepaf_kernel_args args = fill(varied);

    begin_send(args);
    begin_receive();
    run();
    verify(args, receiver->landed.data());
}

#endif
