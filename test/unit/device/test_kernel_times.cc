/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends' kernels in streams, between kernels that note the time: tensors arrive as they do without, and
 * each point of each operation is noted once, in an order that can be. Behind test_kernel_streams.cc. */
#include "kernels_machine/exchange.h"

using kernel_streams::Link;

/* One end's timestamps. */
struct Notes {
    std::vector<stepaf_timestamp> ring;
    std::vector<uint32_t> counts; /* of timestamps; of each kind and slot */
    unsigned depth;
    std::vector<std::vector<stepaf_timestamp_head>> heads; /* of each slot */
    std::vector<uint16_t> peers;
    uint32_t failed[2] = {};
    stepaf_gpu_watch watch = {};
    std::vector<std::unique_ptr<stepaf_timestamp_args>> launched;

    Notes(uint32_t n, unsigned its_depth)
        : ring(n), counts(1 + its_depth * STEPAF_TIMESTAMP_KINDS), depth(its_depth)
    {
    }
    stepaf_timestamp_args *make(stepaf_timestamp_kind kind, unsigned slot);
    void note(Stream &stream, stepaf_timestamp_kind kind, unsigned slot, uint32_t name);
    void note_arrivals(Stream &stream, const Exchange &from, unsigned slot, uint16_t n_each);
};

stepaf_timestamp_args *Notes::make(stepaf_timestamp_kind kind, unsigned slot)
{
    launched.emplace_back(new stepaf_timestamp_args());
    stepaf_timestamp_args *args = launched.back().get();

    args->ring = ring.data();
    args->mask = static_cast<uint32_t>(ring.size() - 1);
    args->n_timestamps = counts.data();
    args->n_ops = counts.data() + 1 + slot * STEPAF_TIMESTAMP_KINDS + kind;
    args->slot = static_cast<uint8_t>(slot);
    args->depth = static_cast<uint8_t>(depth);
    args->kind = static_cast<uint8_t>(kind);
    args->failed = failed;
    args->watch = &watch;
    args->epoch = EPOCH;
    return args;
}

void Notes::note(Stream &stream, stepaf_timestamp_kind kind, unsigned slot, uint32_t name)
{
    stepaf_timestamp_args *args = make(kind, slot);

    args->named = name != 0;
    args->name = name;
    stream.enqueue(1, 1, true, [args] { stepaf_take_time(*args); });
}

/* Of as many peers as have @a n_each of the tensors. */
void Notes::note_arrivals(Stream &stream, const Exchange &from, unsigned slot, uint16_t n_each)
{
    const stepaf_kernel_args &gate = from.receiver->args;
    stepaf_timestamp_args *args = make(STEPAF_TIMESTAMP_WAIT_BEGAN, slot);
    std::vector<stepaf_timestamp_head> its;

    for (uint32_t i = 0; i < gate.n_tensors; i++) {
        const stepaf_kernel_tensor &tensor = gate.tensors[i];
        bool led = tensor.copied && tensor.copied != i + 1;
        its.push_back({tensor.head, led ? gate.tensors[tensor.copied - 1].head : nullptr});
    }
    if (peers.empty())
        for (uint32_t p = 0; p < STEPAF_KERNEL_TENSORS; p++)
            peers.push_back(static_cast<uint16_t>(100 + p));
    heads.push_back(std::move(its));
    args->begins = 1;
    args->n_each = n_each;
    args->n_peers = static_cast<uint16_t>(gate.n_tensors / n_each);
    args->heads = heads.back().data();
    args->peers = peers.data();
    args->counts = gate.counts;
    stream.enqueue(1, STEPAF_WARP, true, [args] { stepaf_arrivals(*args); });
}

/* When an operation was where; of several peers the last. */
struct Seen {
    uint64_t at[STEPAF_TIMESTAMP_KINDS] = {};
    unsigned n_arrived = 0;
    uint32_t name = 0;
};

static std::vector<Seen> read_all(const Notes &notes, unsigned n_ops)
{
    std::vector<Seen> seen(n_ops);
    uint32_t n = notes.counts[0];

    if (n > notes.ring.size())
        fail("there are more timestamps than there can be");
    for (uint32_t i = 0; i < n; i++) {
        const stepaf_timestamp &one = notes.ring[i];
        unsigned kind = one.what >> STEPAF_TIMESTAMP_KIND & 0xf;
        uint32_t op = one.what >> STEPAF_TIMESTAMP_OP & (STEPAF_TIMESTAMP_OPS - 1);
        if ((one.what & (STEPAF_TIMESTAMP_NUMBERS - 1)) != i + 1 || op >= n_ops ||
            kind >= STEPAF_TIMESTAMP_KINDS)
            fail("a timestamp is not what it can be");
        if (kind == STEPAF_TIMESTAMP_NAME) {
            seen[op].name = static_cast<uint32_t>(one.time);
            continue;
        }
        if (kind == STEPAF_TIMESTAMP_WAS_THERE)
            kind = STEPAF_TIMESTAMP_ARRIVED;
        if (kind == STEPAF_TIMESTAMP_ARRIVED) {
            seen[op].n_arrived++;
            if (one.what >> STEPAF_TIMESTAMP_PEER < 100)
                fail("a peer is wrong");
        } else if (seen[op].at[kind]) {
            fail("a point is noted twice");
        }
        if (one.time > seen[op].at[kind])
            seen[op].at[kind] = one.time;
    }
    return seen;
}

static void in_order(uint64_t first, uint64_t second, const char *what)
{
    if (!first || first > second)
        fail(what);
}

static void check(const std::vector<Tensor> &there, const std::vector<Tensor> &back,
                  uint16_t n_each, unsigned depth, unsigned n)
{
    Link push(there, depth, n), pull(back, depth, n);
    Notes of_attention(4096, depth), of_ffn(4096, depth);
    Stream attention, ffn;

    readable.clear();
    for (unsigned i = 0; i < n + depth; i++) {
        if (i >= depth) {
            of_attention.note_arrivals(attention, *pull.slots[i % depth], i % depth,
                                       static_cast<uint16_t>(back.size()));
            pull.operations[i - depth]->enqueue_receive(attention);
            of_attention.note(attention, STEPAF_TIMESTAMP_WAIT_OVER, i % depth, 0);
        }
        if (i < n) {
            of_attention.note(attention, STEPAF_TIMESTAMP_SEND_BEGAN, i % depth, i % 2 ? i : 0);
            push.operations[i]->enqueue_send(attention);
            of_attention.note(attention, STEPAF_TIMESTAMP_SEND_OVER, i % depth, 0);
        }
    }
    for (unsigned i = 0; i < n; i++) {
        of_ffn.note_arrivals(ffn, *push.slots[i % depth], i % depth, n_each);
        push.operations[i]->enqueue_receive(ffn);
        of_ffn.note(ffn, STEPAF_TIMESTAMP_WAIT_OVER, i % depth, 0);
        of_ffn.note(ffn, STEPAF_TIMESTAMP_SEND_BEGAN, i % depth, 0);
        pull.operations[i]->enqueue_send(ffn);
        of_ffn.note(ffn, STEPAF_TIMESTAMP_SEND_OVER, i % depth, 0);
    }
    run_streams({&attention, &ffn});
    push.verify();
    pull.verify();
    std::vector<Seen> a = read_all(of_attention, n), f = read_all(of_ffn, n);
    for (unsigned i = 0; i < n; i++) {
        if (a[i].n_arrived != 1 || f[i].n_arrived != there.size() / n_each)
            fail("not each peer is noted");
        if (a[i].name != (i % 2 ? i : 0))
            fail("a name is wrong");
        in_order(a[i].at[STEPAF_TIMESTAMP_SEND_BEGAN], f[i].at[STEPAF_TIMESTAMP_ARRIVED],
                 "it arrives before it was sent");
        in_order(a[i].at[STEPAF_TIMESTAMP_SEND_BEGAN], a[i].at[STEPAF_TIMESTAMP_SEND_OVER],
                 "it was sent before it began");
        in_order(f[i].at[STEPAF_TIMESTAMP_WAIT_BEGAN], f[i].at[STEPAF_TIMESTAMP_ARRIVED],
                 "it arrives before it is waited for");
        in_order(f[i].at[STEPAF_TIMESTAMP_ARRIVED], f[i].at[STEPAF_TIMESTAMP_WAIT_OVER],
                 "the wait is over before it arrives");
        in_order(f[i].at[STEPAF_TIMESTAMP_WAIT_OVER], f[i].at[STEPAF_TIMESTAMP_SEND_BEGAN],
                 "it is answered before it has come");
        in_order(f[i].at[STEPAF_TIMESTAMP_SEND_BEGAN], a[i].at[STEPAF_TIMESTAMP_ARRIVED],
                 "an answer arrives before it was sent");
        in_order(a[i].at[STEPAF_TIMESTAMP_ARRIVED], a[i].at[STEPAF_TIMESTAMP_WAIT_OVER],
                 "the wait is over before the answer arrives");
    }
    printf("ok: times, %u in flight\n", depth);
}

/* Nobody sends: the wait gives up, says whom it was for, and nothing is noted any more. */
static void give_up()
{
    const std::vector<Tensor> tensors = {{60, 60, STEPAF_PROTO_INLINE, 1, false, 0},
                                         {60, 60, STEPAF_PROTO_INLINE, 1, false, 0}};
    Exchange exchange(tensors);
    Notes notes(64, 1);
    Stream stream;

    readable.clear();
    notes.note_arrivals(stream, exchange, 0, 2);
    notes.launched.back()->timeout_ns = 20000;
    notes.note(stream, STEPAF_TIMESTAMP_WAIT_OVER, 0, 0);
    run_streams({&stream});
    if (!notes.failed[0] || notes.watch.fault != STEPAF_FAULT_TIMEOUT || notes.watch.peer != 100)
        fail("a wait that was in vain is not told of");
    if (notes.counts[0] != 1)
        fail("there are timestamps of a plan that is over");
    printf("ok: times, given up\n");
}

/* Behind a gate that takes any batch, the batch has a name. */
static void name_the_batch()
{
    stepaf_any_entry entries[4] = {{1, 1}, {2, 2}, {UINT64_C(5) << 32 | 2 << 8 | 1, 3}, {4, 4}};
    uint32_t n_batches = 6; /* the third place, again */
    Notes notes(8, 1);
    Stream stream;

    readable.clear();
    notes.note(stream, STEPAF_TIMESTAMP_WAIT_OVER, 0, 1);
    stepaf_timestamp_args &args = *notes.launched.back();
    args.batches = entries;
    args.n_batches = &n_batches;
    args.batch_mask = 3;
    run_streams({&stream});
    if (notes.counts[0] != 2 || notes.ring[1].time != entries[2].batch ||
        (notes.ring[1].what >> STEPAF_TIMESTAMP_KIND & 0xf) != STEPAF_TIMESTAMP_NAME)
        fail("a batch has another name");
    printf("ok: times, a batch's name\n");
}

/* The host asks what time it is, some times. */
static void tell_the_time()
{
    uint32_t asked = 5, n_answers = 0;
    stepaf_timestamp answer = {};
    stepaf_clock_args args = {&asked, &answer, 5, UINT64_MAX / 4};
    uint64_t last = 0;

    readable.clear();
    launch(1, 0, 1, [&args] { stepaf_tell_time(args); });
    launch(1, 0, 1, [&] {
        for (uint32_t i = 5; i < 10; i++) {
            asked = i;
            while (answer.what != i)
                machine_yield();
            n_answers++;
            if (answer.time < last)
                fail("time goes back");
            last = answer.time;
        }
        asked = STEPAF_CLOCK_STOP;
        while (answer.what != STEPAF_CLOCK_STOP)
            machine_yield();
    });
    run();
    if (n_answers != 5)
        fail("the time is not told");
    args.timeout_ns = 10000;
    asked = 5;
    launch(1, 0, 1, [&args] { stepaf_tell_time(args); }); /* nobody asks */
    run();
    printf("ok: the time\n");
}

int main()
{
    const stepaf_proto HEAD = STEPAF_PROTO_INLINE, PIECES = STEPAF_PROTO_LL,
                       PLACE = STEPAF_PROTO_ZCOPY;

    for (unsigned depth = 1; depth <= 3; depth++) {
        check({{30000, 30000, PIECES, 3, false, 0}, {60, 60, HEAD, 1, false, 0}},
              {{9000, 8000, PIECES, 5, false, 0}, {84, 84, HEAD, 1, false, 0}}, 1, depth, 20);
        check({{60, 60, HEAD, 1, false, 0}, {3000, 3000, PLACE, 2, false, 0}},
              {{60, 60, HEAD, 1, false, 0}}, 2, depth, 30);
    }
    give_up();
    name_the_batch();
    tell_the_time();
    return 0;
}
