# SPDX-License-Identifier: Apache-2.0
"""Operations leave nothing behind: no object, no reference, no memory.

By hand: run.sh test_leaks.py OPERATIONS
"""

import gc
import os
import sys

import job
import stepaf

X, Y = 1, 2
COUNT = job.few(3000, 1000)  # twice
PARTS = 4


def measure(ctx, *objects):
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {"blocks": sys.getallocatedblocks(), "objects": len(gc.get_objects()),
            "references": [sys.getrefcount(thing) for thing in (ctx,) + objects
                           if thing is not None],
            "exports": ctx.exports, "resident": resident}


def compare(measures):
    """What leaks is held after each part; memory that a burst has once needed is not."""
    before, after = measures[0], measures[-1]
    print({key: (before[key], after[key]) for key in before})
    assert after["references"] == before["references"]
    assert after["exports"] == before["exports"] == 0
    assert after["blocks"] - before["blocks"] < 200
    assert after["objects"] - before["objects"] < 50
    resident = [measure["resident"] for measure in measures]
    grown = [b - a for a, b in zip(resident, resident[1:])]
    assert min(grown) < 64 * 1024, grown
    assert sum(grown) < 4 << 20, grown


def refused(call, cls):
    try:
        call()
    except cls:
        return
    raise AssertionError("not refused")


def push_pull(ctx, memory):
    """The peer may still hold the last batch."""
    while True:
        try:
            return ctx.push_pull([(X, memory[0])], [(Y, memory[1])])
        except stepaf.WouldBlockError:
            ctx.progress()


def attend(ctx, plan, memory, count):
    for i in range(count):
        request = plan.start([memory[0][:4]], wait=True) if i % 3 else plan.start(wait=True)
        if i % 2:
            request.wait()
        else:
            while not request.test():
                ctx.progress()
        tensor = request.tensor(0)
        with memoryview(tensor):
            tensor.__dlpack__()
        if i % 16 == 0:
            request.timeline(0)
            ctx.counters()
            ctx.link(0)
            refused(request.wait, stepaf.StateError)
            refused(lambda: ctx.plan({9: tensor}), stepaf.KeyError)
            refused(lambda: request.tensor(9), stepaf.InvalidError)
        if i % 64 == 0:
            push_pull(ctx, memory).wait()
        if i % 256 == 0:
            other = ctx.plan({X: memory[0]}, {Y: memory[1]})
            del other


def serve(ctx, memory, count):
    total = count + len(range(0, count, 64))
    for i in range(total):
        batch = ctx.recv() if i % 2 else ctx.recv_many(2)[0]
        for tensor in batch:
            with memoryview(tensor):
                stepaf.as_tensor(tensor)
        if i % 16 == 0:
            batch.answers
            refused(lambda: batch.respond(bytearray(8)), stepaf.UnregisteredError)
        batch.respond(memory[0], release=i % 4 != 0)
        if i % 32 == 0 and not batch.released:
            batch.release()
        del batch, tensor  # else the batch is only given back when the next one is there


def leave_nothing(ctx):
    ctx.push_key(X, (8, 8))
    ctx.pull_key(Y, (8, 8))
    memory = ctx.alloc((2, 8, 8))
    ffn = ctx.role == stepaf.Role.FFN
    plan = None if ffn else ctx.plan({X: memory[0]}, {Y: memory[1]})
    ctx.commit()

    def work(count):
        serve(ctx, memory, count) if ffn else attend(ctx, plan, memory, count)

    # The first half is there to fill what fills once, such as the trace ring.
    work(COUNT)
    measures = [measure(ctx, memory, plan)]
    for _ in range(PARTS):
        work(COUNT // PARTS)
        measures.append(measure(ctx, memory, plan))
    compare(measures)
    ctx.barrier()


def contexts(ctx):
    """Memory and registrations that come and go."""
    ctx.push_key(X, 8)
    buffers = [bytearray(4096) for _ in range(4)]

    def work(count):
        for i in range(count):
            for buffer in buffers:
                ctx.register(buffer)
            for buffer in buffers:
                ctx.deregister(buffer)
            ctx.free(ctx.alloc((4, 1024)))

    work(20)
    measures = [measure(ctx)]
    for _ in range(PARTS):
        work(200 // PARTS)
        measures.append(measure(ctx))
    compare(measures)
    ctx.commit()


class Leaks(job.TestCase):
    def test_operations(self):
        self.run_job(leave_nothing)

    def test_memory(self):
        self.run_job(contexts)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].isdigit():
        COUNT = int(sys.argv.pop(1))
    job.main()
