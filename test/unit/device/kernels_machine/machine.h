/* SPDX-License-Identifier: Apache-2.0 */
/* What runs the threads of kernels_machine/device/cuda/kernels_machine.cuh: fibers, and streams of
 * kernels. */
#ifndef TEST_KERNELS_MACHINE_H
#define TEST_KERNELS_MACHINE_H

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "device/cuda/kernels.cu"

inline Index threadIdx, blockIdx, blockDim, gridDim;

enum { STACK = 64 << 10, TURNS = 20000000 /* far more than anything takes */ };

struct Store {
    uint8_t *at;
    uint8_t bytes[16];
};

struct Thread {
    ucontext_t context; /* where it begins */
    jmp_buf at;         /* where it goes on, once it has begun */
    bool begun = false;
    std::vector<Store> stores; /* not in memory yet */
    std::unique_ptr<char[]> stack;
    bool done = false;
    int meeting = 0; /* that it waits at; 0: it can go on */
    uint32_t mask = 0;
    uint64_t value = 0, result = 0;
    unsigned from = 0;
};

struct Grid;

struct Block {
    std::vector<Thread> threads;
    std::function<void()> program;
    unsigned index, grid;
    std::vector<char> shared;  /* its __shared__ memory while another has its turn */
    Grid *in_stream = nullptr; /* that it is a block of */
    bool lets_begin = false;   /* the kernel after that */
};

/* A kernel in a stream. */
struct Grid {
    unsigned n, threads;
    bool successor; /* it may begin when all blocks before have let it, else when they have ended */
    std::function<void()> program;
    Grid *before;
    std::vector<Block *> blocks;
    bool begun = false, ended = false;
};

struct Stream {
    std::vector<std::unique_ptr<Grid>> grids;
    size_t n_begun = 0;

    void enqueue(unsigned n, unsigned threads, bool successor, std::function<void()> program)
    {
        Grid *before = grids.empty() ? nullptr : grids.back().get();

        grids.emplace_back(new Grid{n, threads, successor, std::move(program), before, {}});
    }
};

/* What may be read by pieces; all, if nothing is said. */
struct Range {
    const uint8_t *from, *to;
};

inline std::vector<Range> readable;
inline std::vector<std::unique_ptr<Block>> blocks;
inline Block *block;     /* whose turn it is */
inline unsigned running; /* its thread */
inline jmp_buf scheduler;
inline uint64_t turns;
inline std::mt19937_64 random_bits(1);

inline uint32_t pick(uint32_t n)
{
    return static_cast<uint32_t>(random_bits() % n);
}

[[noreturn]] inline void fail(const char *what)
{
    printf("FAIL: %s (block %u, thread %u)\n", what, block ? block->index : 0, running);
    exit(1);
}

/* Not by swapcontext, which asks the kernel for the mask of signals each time. */
void machine_yield()
{
    if (!_setjmp(block->threads[running].at))
        _longjmp(scheduler, 1);
}

/* Let it run until it yields. */
inline void resume(Thread &thread)
{
    if (_setjmp(scheduler))
        return;
    if (thread.begun)
        _longjmp(thread.at, 1);
    thread.begun = true;
    setcontext(&thread.context);
}

void machine_store(uint8_t *at, const void *bytes)
{
    Store store = {at, {}};

    memcpy(store.bytes, bytes, sizeof store.bytes);
    block->threads[running].stores.push_back(store);
}

/* One of a thread's stores comes to memory. */
inline void perform_one(std::vector<Store> &stores)
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

inline void machine_check(const uint8_t *at)
{
    for (const Range &range : readable)
        if (at >= range.from && at + 16 <= range.to)
            return;
    if (!readable.empty())
        fail("a load where nothing may be read");
}

inline void machine_let_begin()
{
    block->lets_begin = true;
}

inline void machine_await_before()
{
    const Grid *grid = block->in_stream;

    while (grid && grid->successor && grid->before && !grid->before->ended)
        machine_yield();
}

/* The linker's names for where __shared__ memory is. */
extern "C" char __start_of_blocks[], __stop_of_blocks[];

/* Give it to @a one, whose turn comes. */
inline void change_shared(Block *one)
{
    static Block *owner;
    size_t bytes = static_cast<size_t>(__stop_of_blocks - __start_of_blocks);

    if (owner == one)
        return;
    for (const auto &other : blocks) /* if it is still there */
        if (other.get() == owner)
            owner->shared.assign(__start_of_blocks, __stop_of_blocks);
    one->shared.resize(bytes, '\xee');
    memcpy(__start_of_blocks, one->shared.data(), bytes);
    owner = one;
}

/* Let those of @a thread's warp, or block, go on if all have come. */
inline void meet_if_all(unsigned number)
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

inline void thread_main()
{
    block->program();
    machine_fence();
    block->threads[running].done = true;
    machine_yield();
}

inline Block *launch(unsigned grid, unsigned index, unsigned threads, std::function<void()> program)
{
    Block *made = new Block{std::vector<Thread>(threads), std::move(program), index, grid, {}};

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

inline bool has_ended(const Block &one)
{
    for (const Thread &thread : one.threads)
        if (!thread.done)
            return false;
    return true;
}

/* One thread of a warp goes on. False: none of it can. */
inline bool turn(Block *one, unsigned warp)
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
        resume(one->threads[first + t]);
        return true;
    }
    return false;
}

/* Some turns of one warp. */
inline void take_turns(Block *one)
{
    uint32_t n = static_cast<uint32_t>((one->threads.size() + STEPAF_WARP - 1) / STEPAF_WARP);
    uint32_t warp = pick(n);

    change_shared(one);
    for (uint32_t i = pick(pick(2) ? 400 : 8); i != UINT32_MAX && turn(one, warp); i--)
        continue;
}

/* Until all have ended. */
inline void run()
{
    uint64_t last = turns + TURNS;
    size_t n_ended = 0;

    while (n_ended < blocks.size()) {
        if (turns > last)
            fail("somebody waits for ever");
        take_turns(blocks[pick(static_cast<uint32_t>(blocks.size()))].get());
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

/* ---- streams ---- */

inline bool can_begin(const Grid &grid)
{
    const Grid *before = grid.before;
    unsigned n_through = 0;

    if (!before || before->ended)
        return true;
    if (!grid.successor || !before->begun)
        return false;
    for (const Block *one : before->blocks)
        n_through += one->lets_begin || has_ended(*one);
    return n_through == before->n;
}

/* Begin the next kernel of a stream, if it can. False: there is none. */
inline bool begin_next(Stream &stream)
{
    if (stream.n_begun == stream.grids.size())
        return false;
    Grid &grid = *stream.grids[stream.n_begun];
    if (!can_begin(grid) || pick(4) == 0)
        return true;
    for (unsigned b = 0; b < grid.n; b++) {
        grid.blocks.push_back(launch(grid.n, b, grid.threads, grid.program));
        grid.blocks.back()->in_stream = &grid;
    }
    grid.begun = true;
    stream.n_begun++;
    return true;
}

/* Kernels of which all blocks have ended have ended themselves. */
inline void retire(Stream &stream)
{
    for (size_t g = 0; g < stream.n_begun; g++) {
        Grid &grid = *stream.grids[g];
        bool ended = !grid.ended;
        for (const Block *one : grid.blocks)
            ended = ended && has_ended(*one);
        if (!ended)
            continue;
        grid.ended = true;
        grid.blocks.clear();
        for (size_t i = blocks.size(); i-- > 0;)
            if (blocks[i]->in_stream == &grid)
                blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

/* Until all that is in the streams has ended. */
inline void run_streams(const std::vector<Stream *> &streams)
{
    uint64_t last = turns + TURNS;

    for (bool more = true; more || !blocks.empty();) {
        if (turns > last)
            fail("somebody waits for ever");
        more = false;
        for (Stream *stream : streams)
            more = begin_next(*stream) || more;
        for (int i = 0; i < 64 && !blocks.empty(); i++)
            take_turns(blocks[pick(static_cast<uint32_t>(blocks.size()))].get());
        for (Stream *stream : streams)
            retire(*stream);
    }
}

#endif
