# SPDX-License-Identifier: Apache-2.0
"""Serve while attention ranks are left: FFN ranks answer y = 2 x until all of these have ended.

A receive that times out is no failure: attention ranks may be idle. PeerLostError says that no
attention rank is left; its text says whether they have ended or died."""

import asyncio

import stepaf

TASKS, DEPTH, N = 4, 2, 1024


def serve(ctx):
    """Answer every batch, and print how many there were."""
    answers = [ctx.alloc(N, "f32") for _ in range(DEPTH)]
    requests = [None] * DEPTH
    served = 0
    ctx.commit()
    while True:
        try:
            batch = ctx.recv(timeout=1)
        except stepaf.TimeoutError:
            continue  # idle
        except stepaf.PeerLostError as error:
            print(f"served {served}; {error}")
            return
        slot = served % DEPTH
        if requests[slot]:
            requests[slot].wait()  # before the source of that answer is overwritten
        source, target = memoryview(batch[0]), memoryview(answers[slot])
        for i in range(len(source)):
            target[i] = 2 * source[i]
        requests[slot] = batch.respond(answers[slot])
        served += 1


async def ask(plan, x, number):
    """One task's operations, in sequence; all tasks share the plan's slots."""
    for step in range(3):
        memoryview(x)[0] = 10 * number + step
        request = await plan.start_async([x])
        await request
        # Each slot has its own buffer for the answer. Read it before the slot is started again.
        assert memoryview(request.tensor(0))[0] == 2 * (10 * number + step)


async def ask_all(plan, sources):
    """All tasks concurrently, in one thread."""
    await asyncio.gather(*(ask(plan, x, number) for number, x in enumerate(sources)))


with stepaf.Context() as ctx:
    x_key, y_key = ctx.push_key(1, N, "f32", depth=DEPTH), ctx.pull_key(2, N, "f32", depth=DEPTH)
    if ctx.role == stepaf.Role.FFN:
        serve(ctx)
    else:
        x, y = ctx.alloc((TASKS, N), "f32"), ctx.alloc((DEPTH, N), "f32")
        plan = ctx.plan({x_key: x[0]}, {y_key: y[0]})  # the first slot's buffer; others follow
        ctx.commit()
        asyncio.run(ask_all(plan, [x[number] for number in range(TASKS)]))
        print("all answers are right")
