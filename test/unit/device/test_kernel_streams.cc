/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends' kernels in streams, as programmatic successors, for many operations: what is left in
 * an mailbox, or cleared too late, meets what comes next. No kernel of a user's is between, which
 * would wait for all before it. */
#include "kernels_machine/exchange.h"

/* One operation of a slot: memory of its own, and as many bytes as come. */
struct Operation {
    const Exchange *exchange;
    stepaf_kernel_args send, receive;
    std::vector<std::vector<uint8_t>> sources, places;
    std::vector<uint32_t> landed;

    explicit Operation(Exchange &its);
    void enqueue_send(Stream &stream);
    void enqueue_receive(Stream &stream);
    void verify() const;
};

static uint32_t pick_size(uint32_t planned)
{
    switch (pick(4)) {
    case 0:
        return 0;
    case 1:
        return planned;
    default:
        return pick(planned + 1);
    }
}

Operation::Operation(Exchange &its)
    : exchange(&its), send(its.sender->args), receive(its.receiver->args),
      landed(STEPAF_KERNEL_TENSORS)
{
    for (size_t i = 0; i < its.tensors.size(); i++) {
        const Tensor &tensor = its.tensors[i];
        sources.emplace_back(tensor.planned + 256, 0);
        places.emplace_back(tensor.room + BEYOND + 256, static_cast<uint8_t>(POISON));
    }
    for (size_t i = 0; i < its.tensors.size(); i++) {
        stepaf_kernel_tensor &out = send.tensors[i], &in = receive.tensors[i];
        out.bytes = pick_size(its.tensors[i].planned);
        out.data = aligned(sources[i]) + its.tensors[i].skew;
        in.data = aligned(places[i]) + its.tensors[i].skew;
        if (out.proto == STEPAF_PROTO_ZCOPY)
            out.body = in.data;
        for (uint32_t at = 0; at < out.bytes; at++)
            out.data[at] = make_byte();
    }
    receive.landed = landed.data();
}

void Operation::enqueue_send(Stream &stream)
{
    stream.enqueue(exchange->sender->n_blocks, STEPAF_WARP, true, [this] { ::send(send); });
}

void Operation::enqueue_receive(Stream &stream)
{
    const End &in = *exchange->receiver;

    stream.enqueue(1, in.gate_threads, false, [this] { stepaf_gate(receive); });
    if (in.n_blocks)
        stream.enqueue(in.n_blocks, STEPAF_WARP, true, [this] { ::unpack(receive); });
}

void Operation::verify() const
{
    for (size_t i = 0; i < exchange->tensors.size(); i++) {
        const stepaf_kernel_tensor &out = send.tensors[i];
        const uint8_t *came = receive.tensors[i].data;
        if (exchange->receiver->failed[0] || landed[i] != out.bytes)
            fail("a size is wrong");
        for (uint32_t at = 0; at < out.bytes + BEYOND; at++)
            if (came[at] != (at < out.bytes ? out.data[at] : uint8_t{POISON}))
                fail("a byte is wrong");
    }
}

/* One direction: its slots, and what goes through them. */
struct Link {
    std::vector<std::unique_ptr<Exchange>> slots;
    std::vector<std::unique_ptr<Operation>> operations;

    Link(const std::vector<Tensor> &tensors, unsigned depth, unsigned n)
    {
        for (unsigned s = 0; s < depth; s++)
            slots.emplace_back(new Exchange(tensors));
        for (unsigned i = 0; i < n; i++)
            operations.emplace_back(new Operation(*slots[i % depth]));
    }
    void let_read();
    void verify();
};

/* What is to be empty afterwards, and what may be read. */
static size_t body_bytes(const Tensor &tensor)
{
    return tensor.proto == STEPAF_PROTO_LL ? groups(tensor.room) * size_t{STEPAF_GROUP_BYTES} : 0;
}

static size_t readable_bytes(const Tensor &tensor)
{
    return tensor.proto == STEPAF_PROTO_CHUNKS
               ? static_cast<size_t>(stepaf_chunks_room(tensor.room))
               : body_bytes(tensor);
}

void Link::let_read()
{
    for (const auto &slot : slots)
        for (size_t i = 0; i < slot->tensors.size(); i++) {
            const uint8_t *head = aligned(slot->mailboxes[i]);
            readable.push_back({head, head + STEPAF_HEAD_BYTES + readable_bytes(slot->tensors[i])});
        }
}

/* All has come, and mailboxes are as empty as they were. */
void Link::verify()
{
    for (const auto &operation : operations)
        operation->verify();
    for (const auto &slot : slots)
        for (size_t i = 0; i < slot->tensors.size(); i++) {
            const uint8_t *body = aligned(slot->mailboxes[i]) + STEPAF_HEAD_BYTES;
            for (size_t at = 0; at < body_bytes(slot->tensors[i]); at++)
                if (body[at] != 0)
                    fail("a mailbox is not empty");
        }
}

/* @a n operations there and back, @a depth of them in flight. */
static void check(const char *what, const std::vector<Tensor> &there,
                  const std::vector<Tensor> &back, unsigned depth, unsigned n)
{
    Link push(there, depth, n), pull(back, depth, n);
    Stream attention, ffn;

    readable.clear();
    push.let_read();
    pull.let_read();
    for (unsigned i = 0; i < depth && i < n; i++)
        push.operations[i]->enqueue_send(attention);
    for (unsigned i = 0; i < n; i++) {
        pull.operations[i]->enqueue_receive(attention);
        if (i + depth < n)
            push.operations[i + depth]->enqueue_send(attention);
    }
    for (unsigned i = 0; i < n; i++) {
        push.operations[i]->enqueue_receive(ffn);
        pull.operations[i]->enqueue_send(ffn);
    }
    run_streams({&attention, &ffn});
    push.verify();
    pull.verify();
    printf("ok: %s, %u in flight\n", what, depth);
}

int main()
{
    const stepaf_proto HEAD = STEPAF_PROTO_INLINE, PIECES = STEPAF_PROTO_LL,
                       PLACE = STEPAF_PROTO_ZCOPY, MAILBOX = STEPAF_PROTO_BCOPY,
                       CHUNKS = STEPAF_PROTO_CHUNKS;

    for (unsigned depth = 1; depth <= 3; depth++) {
        check("pieces of kernels",
              {{30000, 30000, PIECES, 3, false, 0}, {60, 60, HEAD, 1, false, 0}},
              {{9000, 8000, PIECES, 5, false, 0}, {20000, 20000, PIECES, 2, false, 0}}, depth, 20);
        check("pieces of gates", {{4096, 4096, PIECES, 1, false, 0}, {60, 60, HEAD, 1, false, 0}},
              {{1009, 1009, PIECES, 2, false, 0}, {3000, 3000, PIECES, 1, false, 0}}, depth, 40);
        check("of both, anywhere", {{4096, 4096, PIECES, 1, false, 3}, {60, 60, HEAD, 1, false, 0}},
              {{17000, 17000, PIECES, 6, false, 0}, {84, 84, HEAD, 1, false, 0}}, depth, 30);
        check("chunks", {{9000, 9000, CHUNKS, 3, false, 0}, {60, 60, HEAD, 1, false, 0}},
              {{5001, 5001, CHUNKS, 2, false, 0}, {3000, 3000, PIECES, 2, false, 0}}, depth, 30);
        check("places and mailboxes",
              {{3000, 3000, MAILBOX, 2, false, 0}, {8, 8, HEAD, 1, false, 0}},
              {{5000, 5000, PLACE, 3, false, 0}}, depth, 30);
    }
    return 0;
}
