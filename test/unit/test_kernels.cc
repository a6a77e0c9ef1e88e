/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels themselves, on a machine that is made up: kernels_machine/device/kernels_machine.cuh.
 * Tensors go from one flow to another, by every way, while senders and receivers take turns at random. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "device/kernels.cu"

Index threadIdx, blockIdx, blockDim, gridDim;

/* ---- the machine ---- */

enum { STACK = 64 << 10, TURNS = 20000000 /* far more than anything takes */ };

struct Store {
    uint8_t *at;
    uint8_t bytes[16];
};

struct Thread {
    ucontext_t context;
    std::vector<Store> stores; /* not in memory yet */
    std::unique_ptr<char[]> stack;
    bool done = false;
    int meeting = 0; /* that it waits at; 0: it can go on */
    uint32_t mask = 0;
    uint64_t value = 0, result = 0;
    unsigned from = 0;
};

struct Block {
    std::vector<Thread> threads;
    std::function<void()> program;
    unsigned index, grid;
};

static std::vector<std::unique_ptr<Block>> blocks;
static Block *block;     /* whose turn it is */
static unsigned running; /* its thread */
static ucontext_t scheduler;
static uint64_t turns;
static std::mt19937_64 random_bits(1);

static uint32_t pick(uint32_t n)
{
    return static_cast<uint32_t>(random_bits() % n);
}

[[noreturn]] static void fail(const char *what)
{
    printf("FAIL: %s (block %u, thread %u)\n", what, block ? block->index : 0, running);
    exit(1);
}

void machine_yield()
{
    swapcontext(&block->threads[running].context, &scheduler);
}

void machine_store(uint8_t *at, const void *bytes)
{
    Store store = {at, {}};

    memcpy(store.bytes, bytes, sizeof store.bytes);
    block->threads[running].stores.push_back(store);
}

/* One of a thread's stores comes to memory. */
static void perform_one(std::vector<Store> &stores)
{
    size_t i = pick(static_cast<uint32_t>(stores.size()));

    memcpy(stores[i].at, stores[i].bytes, sizeof stores[i].bytes);
    stores.erase(stores.begin() + static_cast<std::ptrdiff_t>(i));
}

void machine_fence()
{
    while (!block->threads[running].stores.empty())
        machine_yield(); /* they come to memory in turn() */
}

uint64_t machine_now_ns()
{
    return turns * 10;
}

/* Let those of @a thread's warp, or block, go on if all have come. */
static void meet_if_all(unsigned number)
{
    Thread &one = block->threads[number];
    bool all = one.meeting == BLOCK;
    unsigned n = static_cast<unsigned>(block->threads.size());
    unsigned first = all ? 0 : number / STEPAF_WARP * STEPAF_WARP;
    unsigned last = all ? n : first + STEPAF_WARP;
    uint64_t votes = 0;

    for (unsigned t = first; t < last; t++) {
        if (!all && !(one.mask >> (t - first) & 1))
            continue;
        const Thread &other = block->threads[t];
        if (other.done)
            fail("a thread has ended that others wait for");
        if (other.meeting == 0 || (all && other.meeting != BLOCK))
            return;
        if (other.meeting != one.meeting || other.mask != one.mask)
            fail("threads have come to different meetings");
        votes = all ? votes + other.value : votes | other.value << (t - first);
    }
    for (unsigned t = first; t < last; t++) {
        Thread &other = block->threads[t];
        if (!all && !(one.mask >> (t - first) & 1))
            continue;
        other.result = one.meeting == SHUFFLE ? block->threads[first + other.from].value : votes;
    }
    for (unsigned t = first; t < last; t++)
        if (all || (one.mask >> (t - first) & 1))
            block->threads[t].meeting = 0;
}

uint64_t machine_meet(Meeting meeting, uint32_t mask, uint64_t value, unsigned from)
{
    Thread &thread = block->threads[running];

    thread.mask = mask;
    thread.value = value;
    thread.from = from;
    thread.meeting = meeting;
    meet_if_all(running);
    machine_yield();
    return thread.result;
}

static void thread_main()
{
    block->program();
    machine_fence();
    block->threads[running].done = true;
    swapcontext(&block->threads[running].context, &scheduler);
}

static Block *launch(unsigned grid, unsigned index, unsigned threads, std::function<void()> program)
{
    Block *made = new Block{std::vector<Thread>(threads), std::move(program), index, grid};

    blocks.emplace_back(made);
    for (Thread &thread : made->threads) {
        thread.stack.reset(new char[STACK]);
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.get();
        thread.context.uc_stack.ss_size = STACK;
        thread.context.uc_link = nullptr;
        makecontext(&thread.context, thread_main, 0);
    }
    return made;
}

static bool has_ended(const Block &one)
{
    for (const Thread &thread : one.threads)
        if (!thread.done)
            return false;
    return true;
}

/* One thread of a warp goes on. False: none of it can. */
static bool turn(Block *one, unsigned warp)
{
    unsigned n = static_cast<unsigned>(one->threads.size()), first = warp * STEPAF_WARP;
    unsigned width = min(n - first, STEPAF_WARP);
    unsigned begin = pick(width);

    for (unsigned i = 0; i < width; i++) {
        unsigned t = (begin + i) % width;
        if (!one->threads[first + t].stores.empty() && pick(2))
            perform_one(one->threads[first + t].stores);
        if (one->threads[first + t].done || one->threads[first + t].meeting)
            continue;
        block = one;
        running = first + t;
        threadIdx.x = first + t;
        blockIdx.x = one->index;
        blockDim.x = n;
        gridDim.x = one->grid;
        turns++;
        swapcontext(&scheduler, &one->threads[first + t].context);
        return true;
    }
    return false;
}

/* Until all have ended. */
static void run()
{
    uint64_t last = turns + TURNS;
    size_t n_ended = 0;

    while (n_ended < blocks.size()) {
        if (turns > last)
            fail("somebody waits for ever");
        Block *one = blocks[pick(static_cast<uint32_t>(blocks.size()))].get();
        uint32_t warps =
            static_cast<uint32_t>((one->threads.size() + STEPAF_WARP - 1) / STEPAF_WARP);
        uint32_t warp = pick(warps);
        for (uint32_t i = pick(pick(2) ? 400 : 8); i != UINT32_MAX && turn(one, warp); i--)
            continue;
        bool stuck = true;
        n_ended = 0;
        for (const auto &other : blocks) {
            bool ended = has_ended(*other);
            n_ended += ended;
            for (const Thread &thread : other->threads)
                stuck = stuck && (thread.done || thread.meeting);
        }
        if (stuck && n_ended < blocks.size())
            fail("nobody can go on");
    }
    blocks.clear();
}

/* ---- both ends of some tensors ---- */

struct Tensor {
    uint32_t room, planned;
    stepaf_way way;
    unsigned blocks; /* that share it, each way */
    bool copied;
    unsigned skew; /* from a multiple of 16 */
};

enum { EPOCH = 7, BEYOND = 64, POISON = 0xa5 };

struct End {
    stepaf_flow flow;
    std::vector<uint32_t> counts, done, landed;
    uint32_t failed[2];
    stepaf_gpu_watch watch;
    unsigned n_blocks, gate_threads;
};

static uint32_t groups(uint32_t bytes)
{
    return (bytes + STEPAF_GROUP_DATA - 1) / STEPAF_GROUP_DATA;
}

struct Exchange {
    std::vector<Tensor> tensors;
    std::vector<std::vector<uint8_t>> inlets, sources, places;
    std::unique_ptr<End> sender, receiver;

    explicit Exchange(std::vector<Tensor> its);
    void operate(bool varied);
    stepaf_flow fill(bool varied);
    void begin_send(const stepaf_flow &flow);
    void begin_receive();
    void verify(const stepaf_flow &sent, const uint32_t *landed) const;

  private:
    End *make_end(bool sends);
};

static uint8_t *aligned(std::vector<uint8_t> &bytes)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(bytes.data());

    return bytes.data() + (-at & 127);
}

Exchange::Exchange(std::vector<Tensor> its) : tensors(std::move(its))
{
    for (const Tensor &tensor : tensors) {
        size_t pieces = static_cast<size_t>(groups(tensor.room)) * STEPAF_GROUP_BYTES;
        inlets.emplace_back(STEPAF_HEAD_BYTES + pieces + 256, 0);
        sources.emplace_back(tensor.room + 256, 0);
        places.emplace_back(tensor.room + BEYOND + 256, static_cast<uint8_t>(POISON));
    }
    sender.reset(make_end(true));
    receiver.reset(make_end(false));
}

End *Exchange::make_end(bool sends)
{
    End *end = new End();
    stepaf_flow &flow = end->flow;
    uint32_t n_groups = 0;

    end->done.resize(STEPAF_FLOW_LANES);
    end->landed.resize(STEPAF_FLOW_LANES);
    flow.epoch = EPOCH;
    flow.aligned = 1;
    uint8_t leader = 0;
    for (size_t i = 0; i < tensors.size(); i++) {
        const Tensor &tensor = tensors[i];
        stepaf_lane &lane = flow.lanes[flow.n_lanes++];
        uint8_t *inlet = aligned(inlets[i]);
        lane.way = static_cast<uint8_t>(tensor.way);
        lane.head = inlet;
        lane.body = inlet + STEPAF_HEAD_BYTES;
        if (tensor.way == STEPAF_WAY_PLACE && sends)
            lane.body = aligned(places[i]) + tensor.skew;
        lane.data = aligned(sends ? sources[i] : places[i]) + tensor.skew;
        lane.bytes = sends ? tensor.planned : tensor.room;
        lane.planned = tensor.planned;
        flow.aligned = flow.aligned && tensor.skew % 16 == 0;
        if (tensor.copied)
            leader = static_cast<uint8_t>(i + 1);
        if (tensor.way == STEPAF_WAY_PIECES)
            n_groups += groups(tensor.room);
    }
    flow.gate_takes = n_groups && n_groups <= STEPAF_GATE_GROUPS;
    end->gate_threads = static_cast<unsigned>(tensors.size()) * 8;
    if (flow.gate_takes && end->gate_threads < n_groups * STEPAF_WARP)
        end->gate_threads = n_groups * STEPAF_WARP;
    if (end->gate_threads > 512)
        end->gate_threads = 512;
    end->gate_threads = (end->gate_threads + 31) / 32 * 32;
    for (size_t i = 0; i < tensors.size(); i++) {
        const Tensor &tensor = tensors[i];
        stepaf_lane &lane = flow.lanes[i];
        bool unpacks =
            tensor.way == STEPAF_WAY_INLET || (tensor.way == STEPAF_WAY_PIECES && !flow.gate_takes);
        lane.copied = tensor.copied ? leader : 0;
        lane.first = static_cast<uint16_t>(end->n_blocks);
        if (sends ? !tensor.copied : unpacks)
            lane.n = static_cast<uint16_t>(tensor.way == STEPAF_WAY_HEAD ? 1 : tensor.blocks);
        end->n_blocks += lane.n;
    }
    flow.gate_ends = !end->n_blocks;
    end->counts.resize(end->n_blocks + 1);
    flow.counts = end->counts.data();
    flow.done = end->done.data();
    flow.landed = end->landed.data();
    flow.failed = end->failed;
    flow.watch = &end->watch;
    return end;
}

static uint8_t make_byte()
{
    uint64_t word = random_bits();

    return word % 4 ? static_cast<uint8_t>(word >> 8) : 0xff;
}

/* What copy engines do, piece by piece; then the stream's words. */
static void copy_all(const stepaf_flow &flow, const stepaf_flow &planned)
{
    bool all = true;

    for (uint32_t i = 0; i < flow.n_lanes; i++) {
        const stepaf_lane &lane = flow.lanes[i];
        all = all && (!lane.copied || lane.bytes == planned.lanes[i].bytes);
        for (uint32_t at = 0; lane.copied && at < lane.bytes; at += 64) {
            memcpy(lane.body + at, lane.data + at, lane.bytes - at < 64 ? lane.bytes - at : 64);
            machine_yield();
        }
    }
    for (uint32_t i = 0; i < flow.n_lanes; i++) {
        const stepaf_lane &lane = flow.lanes[i];
        if (!lane.copied || (all && lane.copied != i + 1))
            continue;
        uint64_t word =
            static_cast<uint64_t>(lane.bytes) << 32 | (all ? STEPAF_TOLD_ALL : STEPAF_TOLD);
        memcpy(lane.head + STEPAF_HEAD_TELLS + 8, &word, 8);
        machine_yield();
    }
}

/* New bytes, and as many as planned or fewer. */
stepaf_flow Exchange::fill(bool varied)
{
    stepaf_flow flow = sender->flow;

    for (size_t i = 0; i < tensors.size(); i++) {
        stepaf_lane &lane = flow.lanes[i];
        if (varied)
            lane.bytes = pick(lane.bytes + 1);
        for (uint32_t at = 0; at < lane.bytes; at++)
            lane.data[at] = make_byte();
        memset(receiver->flow.lanes[i].data, POISON, tensors[i].room + BEYOND);
    }
    return flow;
}

void Exchange::begin_send(const stepaf_flow &flow)
{
    for (unsigned b = 0; b < sender->n_blocks; b++)
        launch(sender->n_blocks, b, STEPAF_WARP, [&flow] { stepaf_send(flow); });
    launch(1, 0, 1, [this, &flow] { copy_all(flow, sender->flow); });
}

/* Unpacking begins when the gate has seen the heads: some sending is still under way. */
static void begin_receive(unsigned gate_threads, std::function<void()> gate, unsigned n_blocks,
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
    const stepaf_flow &flow = receiver->flow;

    ::begin_receive(
        receiver->gate_threads, [&flow] { stepaf_gate(flow); }, receiver->n_blocks,
        [&flow] { stepaf_unpack(flow); });
}

void Exchange::verify(const stepaf_flow &sent, const uint32_t *landed) const
{
    for (size_t i = 0; i < tensors.size(); i++) {
        const stepaf_lane &lane = sent.lanes[i];
        const uint8_t *came = receiver->flow.lanes[i].data;
        if (receiver->failed[0] || landed[i] != lane.bytes)
            fail("a size is wrong");
        for (uint32_t at = 0; at < lane.bytes + BEYOND; at++)
            if (came[at] != (at < lane.bytes ? lane.data[at] : uint8_t{POISON})) {
                printf("FAIL: tensor %zu (%u bytes, way %d): byte %u is %u\n", i, lane.bytes,
                       lane.way, at, came[at]);
                exit(1);
            }
    }
}

void Exchange::operate(bool varied)
{
    stepaf_flow flow = fill(varied);

    begin_send(flow);
    begin_receive();
    run();
    verify(flow, receiver->landed.data());
}

/* ---- one end that takes the batch of any of some peers, and answers it ---- */

enum { PEERS = 3, RING = 8 };

struct Any {
    stepaf_any_flow flow;
    std::vector<stepaf_any_lane> lanes;
    std::vector<uint32_t> counts, done, landed;
    uint32_t failed[2];
    stepaf_gpu_watch watch;
    unsigned n_blocks, gate_threads;
};

static std::unique_ptr<Any> make_any(const std::vector<std::unique_ptr<Exchange>> &peers,
                                     bool sends, stepaf_any_entry *ring, stepaf_any_next *next,
                                     uint32_t *origin)
{
    std::unique_ptr<Any> any(new Any());
    stepaf_any_flow &flow = any->flow;
    const End &model = sends ? *peers[0]->sender : *peers[0]->receiver;
    uint8_t n_each = static_cast<uint8_t>(peers[0]->tensors.size());

    for (uint16_t p = 0; p < PEERS; p++)
        for (unsigned i = 0; i < n_each; i++) {
            stepaf_lane lane = (sends ? peers[p]->sender : peers[p]->receiver)->flow.lanes[i];
            lane.peer = p;
            lane.copied = static_cast<uint8_t>(lane.copied ? lane.copied + p * n_each : 0);
            any->lanes.push_back({lane, 0, 0, 0});
        }
    any->counts.resize(model.n_blocks + 1);
    any->done.resize(STEPAF_FLOW_LANES);
    any->landed.resize(STEPAF_FLOW_LANES);
    any->n_blocks = model.n_blocks;
    any->gate_threads = (PEERS * n_each * 8 + 31) / 32 * 32;
    if (any->gate_threads < model.gate_threads)
        any->gate_threads = model.gate_threads;
    flow = {};
    flow.counts = any->counts.data();
    flow.done = any->done.data();
    flow.landed = any->landed.data();
    flow.failed = any->failed;
    flow.watch = &any->watch;
    flow.lanes = any->lanes.data();
    flow.ring = ring;
    flow.next = next;
    flow.origin = origin;
    flow.epoch = EPOCH;
    flow.ring_mask = RING - 1;
    flow.n_peers = PEERS;
    flow.n_each = n_each;
    flow.depth = 1;
    flow.aligned = model.flow.aligned;
    flow.gate_takes = model.flow.gate_takes;
    flow.gate_ends = model.flow.gate_ends;
    for (unsigned i = 0; i < n_each; i++)
        flow.shares[i] = {nullptr, UINT32_MAX, model.flow.lanes[i].first, model.flow.lanes[i].n};
    return any;
}

static void check_any(const char *what, const std::vector<Tensor> &there,
                      const std::vector<Tensor> &back, uint32_t batches)
{
    std::vector<std::unique_ptr<Exchange>> pushes, pulls;
    alignas(16) stepaf_any_entry ring[RING] = {};
    stepaf_any_next next[PEERS + 1] = {};
    stepaf_flow sent[PEERS];
    bool pending[PEERS] = {};
    uint32_t origin[2];

    for (int p = 0; p < PEERS; p++) {
        pushes.emplace_back(new Exchange(there));
        pulls.emplace_back(new Exchange(back));
    }
    std::unique_ptr<Any> in = make_any(pushes, false, ring, next, origin);
    std::unique_ptr<Any> out = make_any(pulls, true, ring, next, origin);
    for (uint32_t n = 1; n <= batches; n++) {
        uint32_t one = pick(PEERS);
        for (uint32_t p = 0; p < PEERS; p++)
            if (!pending[p] && (p == one || pick(2))) {
                sent[p] = pushes[p]->fill(n % 3 != 0);
                pushes[p]->begin_send(sent[p]);
                pending[p] = true;
            }
        begin_receive(
            in->gate_threads, [&in] { stepaf_gate_any(in->flow); }, in->n_blocks,
            [&in] { stepaf_unpack_any(in->flow); });
        run();
        uint32_t peer = origin[0];
        if (peer >= PEERS || !pending[peer] || in->failed[0])
            fail("a batch that nobody has sent");
        pushes[peer]->verify(sent[peer], &in->landed[peer * there.size()]);
        pending[peer] = false;
        stepaf_flow answer = pulls[peer]->fill(false);
        for (unsigned b = 0; b < out->n_blocks; b++)
            launch(out->n_blocks, b, STEPAF_WARP, [&out] { stepaf_send_any(out->flow); });
        pulls[peer]->begin_receive();
        run();
        pulls[peer]->verify(answer, pulls[peer]->receiver->landed.data());
    }
    printf("ok: %s\n", what);
}

static void check(const char *what, const std::vector<Tensor> &tensors, uint32_t operations)
{
    Exchange exchange(tensors);

    for (uint32_t n = 1; n <= operations; n++)
        exchange.operate(n % 3 != 0);
    printf("ok: %s\n", what);
}

static void expect_fault(const char *what, const End &in, uint32_t fault, uint32_t counted)
{
    if (!in.failed[0] || in.watch.fault != fault || in.watch.peer != 3 || in.counts[0] != counted)
        fail(what);
}

static void set_limit(End &in)
{
    in.flow.timeout_ns = 100000;
    for (uint32_t i = 0; i < in.flow.n_lanes; i++)
        in.flow.lanes[i].peer = 3;
}

/* Nobody sends, or one piece does not come: the wait ends, and says whom it was for. */
static void check_ends(const std::vector<Tensor> &tensors)
{
    for (int aborted = 0; aborted < 2; aborted++) {
        Exchange exchange(tensors);
        End &in = *exchange.receiver;
        set_limit(in);
        if (aborted) {
            in.flow.timeout_ns = 0;
            in.watch.abort = 1;
        }
        launch(1, 0, in.gate_threads, [&in] { stepaf_gate(in.flow); });
        run();
        expect_fault("a wait without an end", in,
                     aborted ? STEPAF_FAULT_ABORTED : STEPAF_FAULT_TIMEOUT, 0);
    }
    printf("ok: a wait that is in vain\n");
}

static void check_missing_piece(uint32_t bytes)
{
    Exchange exchange({{bytes, bytes, STEPAF_WAY_PIECES, 3, false, 0}});
    End &in = *exchange.receiver;
    stepaf_flow flow = exchange.fill(false);

    set_limit(in);
    exchange.begin_send(flow);
    run();
    memset(in.flow.lanes[0].body + 5 * STEPAF_GROUP_BYTES + 40 * 16, 0, 16);
    exchange.begin_receive();
    run();
    expect_fault("a piece that is not there", in, STEPAF_FAULT_TIMEOUT, in.flow.gate_takes ? 0 : 1);
    printf("ok: a piece that does not come\n");
}

static bool are_all(const std::vector<uint8_t> &bytes, uint8_t value)
{
    for (uint8_t byte : bytes)
        if (byte != value)
            return false;
    return true;
}

/* A plan that has failed sends nothing, takes nothing, and counts nothing. */
static void check_failed()
{
    Exchange exchange({{84, 84, STEPAF_WAY_HEAD, 1, false, 0},
                       {30000, 30000, STEPAF_WAY_PIECES, 3, false, 0},
                       {3000, 3000, STEPAF_WAY_INLET, 2, false, 0}});
    End &out = *exchange.sender, &in = *exchange.receiver;
    stepaf_flow flow = exchange.fill(false);

    out.failed[0] = 1;
    exchange.begin_send(flow);
    run();
    for (const auto &inlet : exchange.inlets)
        if (!are_all(inlet, 0))
            fail("a plan that has failed sends");
    for (uint32_t count : out.counts)
        if (count != 0)
            fail("a plan that has failed counts what it sends");
    out.failed[0] = 0;
    exchange.begin_send(flow);
    run();
    in.failed[0] = 1;
    in.landed.assign(in.landed.size(), 3000);
    exchange.begin_receive();
    run();
    for (const auto &place : exchange.places)
        if (!are_all(place, POISON))
            fail("a plan that has failed receives");
    if (in.counts[0] != 0)
        fail("a plan that has failed counts what it receives");
    printf("ok: a plan that has failed\n");
}

int main()
{
    const stepaf_way HEAD = STEPAF_WAY_HEAD, PIECES = STEPAF_WAY_PIECES, PLACE = STEPAF_WAY_PLACE,
                     INLET = STEPAF_WAY_INLET;

    check("tensors in heads",
          {{84, 84, HEAD, 1, false, 0},
           {8, 8, HEAD, 1, false, 0},
           {1, 1, HEAD, 1, false, 0},
           {83, 60, HEAD, 1, false, 0},
           {12, 12, HEAD, 1, false, 0}},
          300);
    check("in heads, anywhere", {{84, 84, HEAD, 1, false, 3}, {13, 13, HEAD, 1, false, 4}}, 300);
    check("pieces that the gate takes",
          {{4096, 4096, PIECES, 1, false, 0},
           {1008, 1008, PIECES, 1, false, 0},
           {8, 8, HEAD, 1, false, 0},
           {1009, 1009, PIECES, 1, false, 0}},
          100);
    check("pieces",
          {{30000, 30000, PIECES, 3, false, 0},
           {60, 60, HEAD, 1, false, 0},
           {9000, 8000, PIECES, 11, false, 0}},
          60);
    check("pieces, anywhere",
          {{20001, 20001, PIECES, 2, false, 5}, {1007, 1007, PIECES, 1, false, 1}}, 40);
    check("places and inlets",
          {{5000, 5000, PLACE, 3, false, 0},
           {3000, 3000, INLET, 2, false, 0},
           {777, 777, PLACE, 1, false, 0}},
          100);
    check("copies",
          {{5000, 5000, PLACE, 1, true, 0},
           {8, 8, HEAD, 1, false, 0},
           {300, 200, PLACE, 1, true, 0},
           {3000, 2000, INLET, 2, true, 0}},
          100);
    check("one copy", {{300, 300, PLACE, 1, true, 0}}, 3000);
    check("more heads than a warp takes",
          {{84, 84, HEAD, 1, false, 0},
           {500, 500, PLACE, 1, true, 0},
           {84, 84, HEAD, 1, false, 0},
           {84, 84, HEAD, 1, false, 0},
           {600, 600, PLACE, 1, true, 0},
           {700, 700, PLACE, 1, true, 0},
           {84, 84, HEAD, 1, false, 0}},
          100);
    check_any("any peer's batch", {{4000, 4000, PIECES, 1, false, 0}, {60, 60, HEAD, 1, false, 0}},
              {{20000, 20000, PIECES, 3, false, 0}}, 100);
    check_any("any peer's, of every way",
              {{9000, 9000, PIECES, 2, false, 0},
               {9000, 9000, PIECES, 3, false, 0},
               {84, 84, HEAD, 1, false, 0},
               {2000, 2000, PLACE, 1, true, 0},
               {1000, 1000, INLET, 1, true, 0}},
              {{84, 84, HEAD, 1, false, 0}, {3000, 3000, PLACE, 2, false, 0}}, 60);
    check("as many pieces as the gate takes", {{16128, 16128, PIECES, 3, false, 0}}, 20);
    check("one more", {{16129, 16129, PIECES, 3, false, 0}}, 20);
    check_ends({{84, 84, HEAD, 1, false, 0}, {9000, 9000, PIECES, 2, false, 0}});
    check_ends({{9000, 9000, PIECES, 2, false, 0}});
    check_ends({{9000, 9000, PLACE, 2, false, 0}});
    check_missing_piece(9000);
    check_missing_piece(30000);
    check_failed();
    return 0;
}
