# SPDX-License-Identifier: Apache-2.0
"""What a user may get wrong: an exception, and never a crash, a write into foreign memory or a hang."""

import asyncio
import os
import subprocess
import sys
import threading
import time
import unittest

import job
import stepaf

X, Y = 1, 2


def raises(cls, words, call, *args, **kwargs):
    try:
        made = call(*args, **kwargs)
    except cls as error:
        assert words in str(error), error
        return error
    raise AssertionError(f"no {cls.__name__}: {made!r}")


class Changing:
    """Has DLPack's methods, which change the list that it is in."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.inside = [self, tensor, tensor]

    def __dlpack__(self, **unused):
        return self.tensor.__dlpack__()

    def __dlpack_device__(self):
        del self.inside[1:]
        return self.tensor.__dlpack_device__()


def shapes(ctx):
    raises(stepaf.InvalidError, "more bytes than", ctx.alloc, (2**60 + 1, 16))
    raises(stepaf.InvalidError, "size of -2", ctx.alloc, (-2, -3))
    raises(TypeError, "float", ctx.alloc, (2.5,))
    raises(TypeError, "float", ctx.push_key, 1.5, 4)
    raises(stepaf.InvalidError, "a Python type", ctx.alloc, 8, float)
    raises(stepaf.InvalidError, "64 bits", ctx.withdraw, 2**64 + 7)
    raises(stepaf.InvalidError, "bytes", ctx.push_key, 3, (2**32 + 1,))
    raises(stepaf.InvalidError, "-1 records", ctx.trace, -1)

    class Index:
        def __index__(self):
            return 8

    raises(stepaf.InvalidError, "size of 0", ctx.alloc, (0, 4))
    raises(stepaf.InvalidError, "size of 0", ctx.alloc, 0)
    raises(stepaf.InvalidError, "needs no registration", ctx.register, bytearray())
    assert ctx.alloc(Index()).shape == ctx.alloc((Index(),)).shape == (8,)


def memory(ctx):
    key = ctx.push_key(X, 64)
    ctx.pull_key(Y, 64)
    y = ctx.alloc(64)
    if ctx.role == stepaf.Role.ATTENTION:
        plan = ctx.plan({key: y}, {Y: y})
        ctx.commit()
        listed = Changing(stepaf.as_tensor(bytearray(64)))
        raises(IndexError, "out of range", plan.start, listed.inside)
        request = plan.start()
        raises(OverflowError, "4294967296", request.peer, 2**32)
        raises(OverflowError, "4294967296", request.timeline, 2**32)
        raises(OverflowError, "4294967296", ctx.members_reason, 2**32)
        request.wait()
        ctx.barrier()
        return
    constant = bytes(64)
    ctx.register(constant)
    raises(stepaf.InvalidError, "read-only", ctx.set_recv, key, constant)
    raises(OverflowError, "4294967296", ctx.set_recv, key, y, [2**32])
    ctx.commit()
    batch = ctx.recv()
    raises(stepaf.InvalidError, "rows of batch 0", stepaf.respond_many, [batch], y, [2**32 + 64])
    batch.respond(y).wait()
    ctx.barrier()


def ended_memory(ctx):
    """A registration ends by what register has returned, an allocation by any view of it."""
    buffer = bytearray(256)
    registered = ctx.register(buffer)
    raises(stepaf.UnregisteredError, "what register has returned", ctx.deregister, memoryview(buffer)[64:])
    raises(stepaf.UnregisteredError, "what register has returned", ctx.deregister, bytearray(64))
    ctx.deregister(registered)
    raises(stepaf.UnregisteredError, "what register has returned", ctx.deregister, registered)
    ctx.register(buffer)
    ctx.deregister(buffer)
    tensor = ctx.alloc((4, 64))
    raises(stepaf.UnregisteredError, "ends with free", ctx.deregister, tensor)
    ctx.free(tensor[1:])
    assert not tensor.valid


def opened_again(ctx):
    tensor = ctx.alloc(64)
    ctx.close()
    assert not tensor.valid
    raises(RuntimeError, "opened before", ctx.__init__)


def of_the_parent(ctx):
    plan = ctx.plan({ctx.push_key(X, 64): ctx.alloc(64)}) if ctx.role == stepaf.Role.ATTENTION else None
    tensor = ctx.alloc(64)
    view = memoryview(tensor)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            view[7] = 9  # the memory is the parent's, as docs/python.md says
            assert ctx.closed and not tensor.valid
            raises(stepaf.HandleError, "parent", memoryview, tensor)
            raises(stepaf.HandleError, "parent", tensor.data_ptr)
            assert not plan or plan.depth == 1
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert tensor.valid and not ctx.closed and view[7] == 9
    view.release()


def long_wait(ctx, parted, call):
    """A barrier or commit that another thread's close ends, also one that began when the memory was
    still read by somebody."""
    ctx.push_key(X, 8)
    tensor = ctx.alloc(8)
    if ctx.role == stepaf.Role.FFN:
        parted.wait()
        return
    ended, view, runs = [], memoryview(tensor), threading.Event()

    def pend():
        runs.set()
        ended.append(raises(stepaf.CanceledError, "closed", call, ctx))

    thread = threading.Thread(target=pend)
    thread.start()
    runs.wait()
    time.sleep(0.5)  # by now it is in the call
    began = time.monotonic()
    threading.Timer(0.2, view.release).start()
    ctx.close()
    thread.join(60)
    parted.send()
    assert ended and time.monotonic() - began < 30, ended
    assert not tensor.valid and ctx.closed


def in_asyncio(ctx):
    ctx.push_key(X, 64)
    ctx.commit()
    if ctx.role == stepaf.Role.ATTENTION:
        ctx.barrier()
        return

    async def all_of_it():
        for timeout in (float("nan"), -1):
            try:
                await ctx.recv_async(timeout)
            except stepaf.InvalidError as error:
                assert "timeout" in error.text, error
            else:
                raise AssertionError(timeout)
        receiving = asyncio.ensure_future(ctx.recv_async(60))
        await asyncio.sleep(0.01)
        ctx.barrier()
        ctx.close()
        try:
            await receiving
        except stepaf.CanceledError as error:
            assert "closed" in error.text, error
        else:
            raise AssertionError("received")

    asyncio.run(all_of_it())


class Misuse(job.TestCase):
    def test_shapes(self):
        self.run_job(shapes)

    def test_memory(self):
        self.run_job(memory)

    def test_ended_memory(self):
        self.run_job(ended_memory)

    def test_opened_again(self):
        self.run_job(opened_again)

    def test_of_the_parent(self):
        self.run_job(of_the_parent)

    def test_long_waits(self):
        for call in (lambda ctx: ctx.barrier(timeout=120), lambda ctx: ctx.commit()):
            parted = job.Signal()
            self.run_job(lambda ctx: long_wait(ctx, parted, call),
                         env={"STEPAF_COMMIT_TIMEOUT_US": "120000000"})
            parted.close()

    def test_in_asyncio(self):
        self.run_job(in_asyncio)

    def test_objects_of_nothing(self):
        for cls in (stepaf.Tensor, stepaf.Batch, stepaf.Plan, stepaf.Request):
            with self.assertRaises(TypeError):
                object.__new__(cls)

    def test_elements_of_other_sizes(self):
        tensor = stepaf.as_tensor(memoryview(bytearray(64)).cast("B"))
        with self.assertRaises(TypeError):
            tensor.__dlpack__(max_version=[1, 0])
        with self.assertRaises(TypeError):
            tensor.__dlpack__(dl_device=1)

        class Bool:
            def __bool__(self):
                raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            tensor.__dlpack__(copy=Bool())

    def test_text_that_is_not_utf8(self):
        os.environb[b"STEPAF_LOCAL_SIZE"] = b"\xff"
        try:
            with self.assertRaisesRegex(stepaf.SettingError, "STEPAF_LOCAL_SIZE"):
                stepaf.Context()
        finally:
            del os.environ["STEPAF_LOCAL_SIZE"]

    def test_another_interpreter(self):
        program = ("import stepaf, _xxsubinterpreters as s\n"
                   "i = s.create()\n"
                   "try: s.run_string(i, 'import stepaf')\n"
                   "except s.RunFailedError as error: assert 'interpreter' in str(error), error\n"
                   "else: raise AssertionError('imported')\n"
                   "try: stepaf.Context('ffn', split='none')\n"
                   "except stepaf.StepafError: print('caught')\n")
        try:
            __import__("_xxsubinterpreters")
        except ImportError:
            raise unittest.SkipTest("this Python has no _xxsubinterpreters") from None
        said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=100, check=False)
        self.assertEqual((said.stdout, said.returncode), ("caught\n", 0), said.stderr)


if __name__ == "__main__":
    job.main()
