# SPDX-License-Identifier: Apache-2.0
"""Threads, signals, asyncio and forks: who waits does not hold up the others."""

import asyncio
import os
import selectors
import signal
import socket
import sys
import threading
import time

import job
import stepaf

X, Y = 1, 2


def prepare(ctx, depth=1):
    x_key, y_key = ctx.push_key(X, 64, depth=depth), ctx.pull_key(Y, 64, depth=depth)
    memory = ctx.alloc((1 + depth, 64))
    plan = None
    if ctx.role == stepaf.Role.ATTENTION:
        plan = ctx.plan({x_key: memory[0]}, {y_key: memory[1]})
    ctx.commit()
    return plan, memory


def lock_is_free(ctx):
    """While one thread waits, another counts as if it were alone."""
    plan, memory = prepare(ctx)
    if ctx.role == stepaf.Role.FFN:
        waits = threading.Thread(target=lambda: ctx.recv().respond(memory[0]))
    else:
        waits = threading.Thread(target=lambda: plan.start().wait())
        time.sleep(0.2)
    waits.start()
    n, until = 0, time.monotonic() + 0.1
    while time.monotonic() < until:
        n += 1
    # Switching would come every 5 ms, were the lock held in between.
    assert n > 1000, n
    waits.join(30)
    assert not waits.is_alive()
    ctx.barrier()


def closed_by_another(ctx):
    """close() ends receives and waits that are pending, soon."""
    plan, _ = prepare(ctx)
    ended = []

    def pend():
        try:
            request = plan.start() if plan else None
            ctx.barrier()
            if request:
                request.wait(60)
            held = ctx.recv_each(60)
            ctx.recv(60)
            del held
        except stepaf.StepafError as error:
            ended.append(error)

    if ctx.role == stepaf.Role.FFN:
        thread = threading.Thread(target=pend)
        thread.start()
        time.sleep(0.1)
        began = time.monotonic()
        ctx.close()
        thread.join(30)
        assert isinstance(ended[0], stepaf.CanceledError), ended
        assert "closed" in ended[0].text
        assert time.monotonic() - began < 10
        return
    pend()
    assert isinstance(ended[0], stepaf.PeerLostError), ended


def interrupted(ctx):
    """Control-C ends a wait, which can be gone on with."""
    plan, memory = prepare(ctx)
    if ctx.role == stepaf.Role.FFN:
        ctx.barrier()
        ctx.recv().respond(memory[0])
        ctx.barrier()
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    request = plan.start()
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        request.wait()
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("not interrupted")
    ctx.barrier()
    request.wait()
    ctx.barrier()


def soon(seconds=0.3):
    """Control-C in a moment."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


def stop_alone(env):
    """Control-C ends the making of a context whose other ranks do not come."""
    for name in [name for name in os.environ if name.startswith("STEPAF_LOCAL_")]:
        del os.environ[name]
    os.environ.update(env, STEPAF_INIT_TIMEOUT_US="60000000")
    soon()
    began = time.monotonic()
    try:
        stepaf.Context()
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("not interrupted")
    assert time.monotonic() - began < 10


def stop_collective(ctx, call):
    """Control-C ends a call that waits for other ranks; the context is there as before."""
    if call != "commit":
        prepare(ctx)
        ctx.barrier()
    if ctx.role == stepaf.Role.FFN:
        time.sleep(1)  # it does not come
        return
    soon()
    began = time.monotonic()
    try:
        getattr(ctx, call)()
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("not interrupted")
    assert time.monotonic() - began < 10
    assert not ctx.closed


def close_in_a_handler(ctx):
    """A handler can do with the context what it likes, since it runs when the call has ended."""
    seen = []

    def stop(number, frame):
        seen.append(ctx.epoch)
        ctx.close()

    prepare(ctx)
    if ctx.role == stepaf.Role.FFN:
        time.sleep(1)
        return
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()  # it does not end the call
    threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGTERM)).start()
    began = time.monotonic()
    try:
        ctx.barrier()
    except stepaf.CanceledError as error:
        assert "closed" in error.text, error
    else:
        raise AssertionError("not ended")
    assert len(seen) == 2 and signal.SIGUSR1 in seen and ctx.closed, seen
    assert 0.4 <= time.monotonic() - began < 10


def wakes_as_before(ctx):
    """The descriptor that the program has for signals gets them, too."""
    prepare(ctx)
    if ctx.role == stepaf.Role.FFN:
        time.sleep(1)
        return
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for one in (ours, theirs):
            one.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno())
        soon()
        try:
            ctx.barrier()
        except KeyboardInterrupt:
            pass
        assert ours.recv(16) == bytes([signal.SIGINT])
        assert signal.set_wakeup_fd(-1) == theirs.fileno()


class CountingSelector(selectors.DefaultSelector):
    """Counts the turns of an event loop."""

    def __init__(self):
        super().__init__()
        self.turns = 0

    def select(self, timeout=None):
        self.turns += 1
        return super().select(timeout)


def in_asyncio(ctx, ticked):
    """Requests and batches are awaited while other tasks run."""
    plan, memory = prepare(ctx, depth=2)
    selector = CountingSelector()
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            if ticks == 21:
                ticked.send()
            await asyncio.sleep(0.001)

    async def attend():
        ticking = asyncio.ensure_future(tick())
        await asyncio.gather(plan.start(), plan.start())
        assert ticks > 20, ticks
        # A tick and two looks are 3 turns a millisecond; a loop that spins makes 10 and more. Turns
        # are compared with ticks, not with a clock: both get fewer on a loaded machine.
        assert selector.turns < 500 + 4 * ticks, f"the loop spins: {selector.turns}, {ticks}"
        ticking.cancel()
        request = plan.start()
        await request
        await stepaf.wait(plan.start(), 10)

    async def serve():
        # Not before other tasks have run at the other rank, however slow it is.
        await asyncio.get_running_loop().run_in_executor(None, ticked.wait)
        await asyncio.sleep(0.5)
        for _ in range(4):
            batch = await ctx.recv_async()
            await batch.respond(memory[0])
        try:
            await ctx.recv_async(0.02)
        except stepaf.TimeoutError as error:
            assert error.phase == "waiting for a batch", error.phase
            return
        raise AssertionError("a fifth batch")

    loop = asyncio.SelectorEventLoop(selector)
    loop.run_until_complete(attend() if plan else serve())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    ctx.barrier()


def tasks_share_a_plan(ctx):
    """More tasks than slots: each result is there until its task has waited for it."""
    n_tasks, n_steps, depth = 5, 20, 2
    x_key, y_key = ctx.push_key(X, 8, depth=depth), ctx.pull_key(Y, 8, depth=depth)
    x, y = ctx.alloc((n_tasks, 8)), ctx.alloc((depth, 8))
    plan = ctx.plan({x_key: x[0]}, {y_key: y[0]}) if ctx.role == stepaf.Role.ATTENTION else None
    ctx.commit()
    if not plan:
        requests = [None] * depth
        for i in range(n_tasks * n_steps + 1):
            batch = ctx.recv()
            if requests[i % depth]:
                requests[i % depth].wait()
            memoryview(y[i % depth])[:] = memoryview(batch[0])
            requests[i % depth] = batch.respond(y[i % depth])
            del batch
        ctx.barrier()
        batch = ctx.recv()
        ctx.barrier()
        batch.respond(y[0]).wait()
        return

    async def ask(number):
        for step in range(n_steps):
            memoryview(x[number])[0] = (17 * number + step) % 256
            request = await plan.start_async([x[number]])
            await asyncio.sleep(0)  # others come first, with what has come for this one
            await stepaf.wait(request, 30)
            got = memoryview(request.tensor(0))[0]
            assert got == (17 * number + step) % 256, (number, step, got)

    async def raises(cls, words, coroutine):
        try:
            await coroutine
        except cls as error:
            assert words in str(error), error
            return error
        raise AssertionError(f"no {cls}")

    async def ask_all():
        await asyncio.gather(*map(ask, range(n_tasks)))
        held = await plan.start_async(push=None, timeout=5)
        while not held.peer(0):
            await asyncio.sleep(0.001)
        ctx.barrier()
        late = await plan.start_async()
        error = await raises(stepaf.TimeoutError, "FFN rank 0", stepaf.wait(late, 0.02))
        assert error.peer.rank == 0 and error.phase == "waiting for the response", error.phase
        await raises(stepaf.TimeoutError, "nobody has waited", plan.start_async(timeout=0.02))
        del held  # nobody can wait for it any more: its slot is free
        for wrong in ({"paint": "red"}, {"wait": True}):
            try:
                plan.start_async(**wrong)
            except TypeError:
                continue
            raise AssertionError(wrong)
        error = await raises(stepaf.TimeoutError, "FFN rank 0", start_twice())
        assert error.peer.rank == 0, error.peer
        ctx.barrier()
        await late

    async def start_twice():
        request = await plan.start_async([0], timeout=0.02)
        await plan.start_async(timeout=0.02)
        raise AssertionError(f"a third slot after {request}")

    asyncio.run(ask_all())


def forked(ctx):
    """A child has none of its parent's context, and does it no harm."""
    plan, memory = prepare(ctx)
    request = plan.start() if plan else None
    batch = None if plan else ctx.recv()
    view = memoryview(memory)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for use in (ctx.commit, lambda: ctx.role, memory.data_ptr if False else ctx.progress,
                        (lambda: request.wait()) if plan else (lambda: batch.respond(memory[0]))):
                try:
                    use()
                except stepaf.HandleError as error:
                    assert "parent process" in error.text, error.text
                else:
                    raise AssertionError("usable in a child")
            view.release()
            del batch, request, plan, memory
            ctx.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    if batch:
        batch.respond(memory[0])
    else:
        request.wait()
    view.release()
    ctx.barrier()


def many_threads(ctx):
    """Threads start and wait for plans of their own at once."""
    n, count = 4, job.few(2000, 200)
    x_keys = [ctx.push_key(10 + i, 8) for i in range(n)]
    y_keys = [ctx.pull_key(20 + i, 8) for i in range(n)]
    memory = ctx.alloc((2 * n, 8))
    failures = []

    def attend(plan):
        try:
            for _ in range(count):
                plan.start(wait=True).wait()
        except BaseException as error:
            failures.append(error)

    def serve():
        try:
            for _ in range(count * n // 2):
                batch = ctx.recv()
                batch.respond(memory[batch.plan])
        except BaseException as error:
            failures.append(error)

    if ctx.role == stepaf.Role.ATTENTION:
        plans = [ctx.plan({x: memory[i]}, {y: memory[n + i]})
                 for i, (x, y) in enumerate(zip(x_keys, y_keys))]
        ctx.commit()
        threads = [threading.Thread(target=attend, args=(plan,)) for plan in plans]
    else:
        ctx.commit()
        threads = [threading.Thread(target=serve) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    ctx.barrier()


class Threads(job.TestCase):
    def test_the_lock_is_free(self):
        self.run_job(lock_is_free)

    def test_closed_by_another(self):
        self.run_job(closed_by_another)

    def test_closed_by_another_with_a_thread(self):
        self.run_job(closed_by_another, params={"progress": "thread"})

    def test_interrupted(self):
        self.run_job(interrupted)

    def test_interrupted_alone(self):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            meet = f"127.0.0.1:{one.getsockname()[1]}"
        for env in (
            {"STEPAF_LOCAL_SIZE": "2", "STEPAF_LOCAL_RANK": "0", "STEPAF_LOCAL_JOB": f"al-{os.getpid()}"},
            {"STEPAF_LOCAL_SIZE": "2", "STEPAF_LOCAL_RANK": "1", "STEPAF_LOCAL_JOB": f"al-{os.getpid()}"},
            {"STEPAF_MEET": meet, "STEPAF_SIZE": "2", "STEPAF_RANK": "0"},
            {"STEPAF_MEET": meet, "STEPAF_SIZE": "2", "STEPAF_RANK": "1"},
        ):
            with self.subTest(env=env):
                self.run_apart(lambda env=env: stop_alone(env))

    def test_interrupted_among_others(self):
        for call in ("commit", "barrier", "map_check"):
            with self.subTest(call=call):
                self.run_job(lambda ctx, call=call: stop_collective(ctx, call))

    def test_closed_by_a_handler(self):
        self.run_job(close_in_a_handler)

    def test_wakes_as_before(self):
        self.run_job(wakes_as_before)

    def test_in_asyncio(self):
        ticked = job.Signal()
        self.run_job(lambda ctx: in_asyncio(ctx, ticked), params={"threads": "single"})
        ticked.close()

    def test_tasks_share_a_plan(self):
        self.run_job(tasks_share_a_plan)
        self.run_job(tasks_share_a_plan, params={"progress": "thread"})

    def test_forked(self):
        self.run_job(forked)

    def test_many_threads(self):
        self.run_job(many_threads)


if __name__ == "__main__":
    sys.setswitchinterval(0.005)
    job.main()
