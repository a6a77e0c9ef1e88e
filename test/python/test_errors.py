# SPDX-License-Identifier: Apache-2.0
"""Statuses of the library as exceptions, each provoked where a test can, with its sentence."""

import os
import signal
import time

import job
import stepaf

X, Y = 1, 2


class Raises:
    """Like assertRaisesRegex, in ranks."""

    def __init__(self, cls, *words):
        self.cls, self.words = cls, words

    def __enter__(self):
        return self

    def __exit__(self, cls, error, trace):
        assert cls is self.cls, f"{cls}, not {self.cls}: {error}"
        self.error = error
        assert error.text == str(error) and error.text, error
        for word in self.words:
            assert word in error.text, error.text
        return True


def arguments(ctx):
    with Raises(stepaf.InvalidError, "no element type"):
        ctx.push_key(9, 4, "complex128")
    with Raises(stepaf.InvalidError, "dimensions"):
        ctx.push_key(9, [1] * 9)
    with Raises(stepaf.InvalidError):
        ctx.push_key(9, -4)
    with Raises(stepaf.InvalidError, "no memory of device"):
        ctx.alloc(4, device="tpu")
    with Raises(stepaf.InvalidError):
        ctx.alloc(0)
    with Raises(stepaf.InvalidError, "timeout"):
        ctx.barrier(timeout=-1)
    with Raises(stepaf.KeyError):
        ctx.withdraw(77)
    with Raises(stepaf.StateError):
        ctx.map_check()
    x_key, y_key = ctx.push_key(X, 64), ctx.pull_key(Y, 64)
    with Raises(stepaf.InvalidError):
        ctx.pull_key(X, 64)
    if job.NO_GPU:
        with Raises(stepaf.UnsupportedError):
            ctx.alloc(64, device="cuda:0")
    memory = ctx.alloc((2, 64))
    if ctx.role == stepaf.Role.FFN:
        with Raises(stepaf.RoleError):
            ctx.plan({x_key: memory[0]})
        with Raises(stepaf.StateError, "not committed"):
            ctx.recv(0)
        with Raises(stepaf.KeyError):
            ctx.set_recv(5, memory)
        with Raises(stepaf.SizeError):
            ctx.set_recv(X, memory[0][:4])
        ctx.commit()
        with Raises(stepaf.TimeoutError):
            ctx.recv(0)
        with Raises(stepaf.TimeoutError, "no batch") as raised:
            ctx.recv(0.01)
        assert raised.error.phase == "waiting for a batch", raised.error.phase
        ctx.barrier()
        return
    with Raises(stepaf.UnregisteredError):
        ctx.plan({x_key: bytearray(64)})
    with Raises(stepaf.SizeError):
        ctx.plan({x_key: ctx.alloc(65)})
    with Raises(stepaf.KeyError):
        ctx.plan({5: memory[0]})
    with Raises(stepaf.InvalidError):
        ctx.plan({})
    with Raises(stepaf.InvalidError, "read-only"):
        ctx.plan({}, {y_key: bytes(64)})
    plan = ctx.plan({x_key: memory[0]}, [(y_key, memory[1][:32]), (y_key, memory[1][32:])])
    with Raises(stepaf.StateError):
        plan.start()
    with Raises(stepaf.StateError):
        plan.wait_on_stream(0)
    if job.NO_GPU:
        with Raises(stepaf.UnsupportedError):
            ctx.plan({x_key: memory[0]}, [(y_key, memory[1][:32]), (y_key, memory[1][32:])],
                     stream=True)
    with Raises(stepaf.RoleError):
        ctx.recv()
    ctx.commit()
    ctx.barrier()


def late(ctx):
    x_key, y_key = ctx.push_key(X, 64), ctx.pull_key(Y, 64)
    memory = ctx.alloc((2, 64))
    if ctx.role == stepaf.Role.FFN:
        ctx.commit()
        batch = ctx.recv()
        ctx.barrier()
        ctx.progress()
        with Raises(stepaf.CanceledError):
            batch.respond(memory[0])
        batch.release()
        batch = ctx.recv()
        with Raises(stepaf.InvalidError):
            batch.respond([memory[0], memory[1]])
        with Raises(stepaf.SizeError):
            batch.respond(ctx.alloc(65))
        with Raises(stepaf.UnregisteredError):
            batch.respond(bytearray(64))
        with Raises(stepaf.StateError, "cannot be canceled"):
            batch.respond(memory[0], release=False).cancel()
        with Raises(stepaf.StateError):
            batch.respond(memory[0])
        batch.release()
        ctx.barrier()
        return
    plan = ctx.plan({x_key: memory[0]}, {y_key: memory[1]})
    ctx.commit()
    request = plan.start()
    with Raises(stepaf.TimeoutError):
        request.wait(0)
    began = time.monotonic()
    with Raises(stepaf.TimeoutError, "FFN rank 0", "in time") as raised:
        request.wait(timeout=0.12)
    assert time.monotonic() - began >= 0.119
    assert raised.error.phase == "waiting for the response"
    assert raised.error.peer == stepaf.Peer(stepaf.Role.FFN, 0, 1)
    with Raises(stepaf.WouldBlockError):
        plan.start()
    with Raises(stepaf.TimeoutError):
        plan.start(wait=True, timeout=0.01)
    with Raises(stepaf.StateError):
        plan.destroy()
    assert request.cancel() is True
    assert request.cancel() is False
    with Raises(stepaf.CanceledError):
        request.wait()
    with Raises(stepaf.StateError, "waited for already"):
        request.wait()
    ctx.barrier()
    old, request = request, plan.start(wait=True)
    while not request.peer(0):
        ctx.progress()
    assert request.cancel() is False  # the answer came before
    request.wait()
    assert request.cancel() is False
    with Raises(stepaf.HandleError, "slot has been started again"):
        old.cancel()
    with Raises(stepaf.HandleError, "slot has been started again"):
        old.wait()
    with Raises(stepaf.InvalidError):
        request.peer(5)
    plan.destroy()
    with Raises(stepaf.HandleError):
        plan.start()
    with Raises(stepaf.HandleError):
        request.wait()
    ctx.barrier()


def lost(ctx):
    x_key = ctx.push_key(X, 64)
    memory = ctx.alloc(64)
    if ctx.role == stepaf.Role.FFN:
        ctx.commit()
        batch = ctx.recv()
        assert not batch.released
        os.kill(os.getpid(), signal.SIGKILL)
    plan = ctx.plan({x_key: memory})
    ctx.commit()
    request = plan.start()
    with Raises(stepaf.PeerLostError, "FFN rank 0") as raised:
        request.wait()
    assert raised.error.peer.rank == 0 and raised.error.peer.role == stepaf.Role.FFN
    with Raises(stepaf.PeerLostError):
        plan.start()


def uneven(ctx):
    """Three pulls for two FFN ranks; then a commit where nothing has changed."""
    x_key, y_key = ctx.push_key(X, 64), ctx.pull_key(Y, 64)
    memory = ctx.alloc((3, 64))
    if ctx.role == stepaf.Role.ATTENTION:
        with Raises(stepaf.PullsError):
            ctx.plan({x_key: memory[0]}, [(y_key, memory[i]) for i in range(3)])
    ctx.commit()
    with Raises(stepaf.StateError):
        ctx.commit()


def mismatched(ctx):
    """The sentence has both ranks' words for what differs."""
    is_ffn = ctx.role == stepaf.Role.FFN
    ctx.push_key(X, (2, 64) if is_ffn else 128, "bf16")
    with Raises(stepaf.MismatchError, "key 1", "shape (2, 64)", "shape (128)"):
        ctx.commit()
    ctx.withdraw(X)
    ctx.push_key(X, 64, "bf16" if is_ffn else "f16")
    with Raises(stepaf.MismatchError, "key 1", "elements of bf16", "elements of f16"):
        ctx.commit()
    ctx.withdraw(X)
    ctx.declare(X, stepaf.Direction.PUSH if is_ffn else stepaf.Direction.PULL, 64)
    with Raises(stepaf.MismatchError, "key 1", "a push", "a pull"):
        ctx.commit()


def other_elements(ctx):
    """What has other elements than its key is refused wherever a tensor is passed; bytes are not."""
    x_key, y_key = ctx.push_key(X, (4, 8), "bf16"), ctx.pull_key(Y, (4, 8), "f32")
    x, y, wide = ctx.alloc((4, 8), "bf16"), ctx.alloc((4, 8), "f32"), ctx.alloc((4, 8), "f64")
    half, ints = stepaf.view(x, (4, 8), "f16"), stepaf.view(y, (4, 8), "i32")
    as_bytes, as_numpy = stepaf.view(x, 64, "u8"), memoryview(x)
    words = "elements are f16", "key 1 bf16"
    if ctx.role == stepaf.Role.FFN:
        ctx.commit()
        batch = ctx.recv()
        with Raises(stepaf.InvalidError, "elements are i32", "key 2 f32"):
            batch.respond([ints])
        with Raises(stepaf.InvalidError, "elements are i32"):
            batch.respond_tensor(0, ints)
        with Raises(stepaf.InvalidError, "elements are i32"):
            stepaf.respond_many([batch], ints)
        batch.respond([y]).wait()
        for _ in range(4):
            stepaf.respond_many([ctx.recv()], stepaf.view(y, 128, "u8"))
        ctx.barrier()
        return
    with Raises(stepaf.InvalidError, *words):
        ctx.plan({x_key: half}, {y_key: y})
    with Raises(stepaf.InvalidError, "elements are i32"):
        ctx.plan({x_key: x}, {y_key: ints})
    with Raises(stepaf.InvalidError, *words):
        ctx.push_pull({X: half}, {Y: y})
    with Raises(stepaf.InvalidError, "elements are 2 bytes", "key 2 f32"):
        ctx.plan({x_key: x}, {y_key: as_numpy})
    plan = ctx.plan({x_key: as_numpy}, {y_key: y})
    ctx.commit()
    with Raises(stepaf.InvalidError, *words):
        plan.start(half)
    with Raises(stepaf.InvalidError, "elements are f64"):
        plan.start([wide[:1]])
    nothing, short = stepaf.view(wide, (0, 8), "f64"), stepaf.view(x, (4, 8), "i16")
    for source in (x[:2], as_bytes, as_numpy, nothing, short):
        plan.start(source, wait=True).wait()
    ctx.barrier()


def other_rows(ctx):
    """Rows of another shape than the key's are refused wherever a tensor is passed; what has another number of
    dimensions, bytes and nothing at all are not."""
    x_key, y_key = ctx.push_key(X, (4, 8), "f32"), ctx.pull_key(Y, (4, 8), "f32")
    flat_key = ctx.push_key(3, (4, 32))
    x, y = ctx.alloc((4, 8), "f32"), ctx.alloc((4, 8), "f32")
    wide, short = stepaf.view(x, (2, 16)), stepaf.view(x, (3, 4))
    words = "shape is (2, 16)", "key 1 (4, 8)", "stepaf.view"
    good = [x, x[:3], stepaf.view(x, 32), stepaf.view(x, (2, 2, 8)), stepaf.view(x, (2, 64), "u8"),
            stepaf.view(x, (0, 16)), stepaf.view(wide, (4, 8)), None]
    if ctx.role == stepaf.Role.FFN:
        ctx.commit()
        batch = ctx.recv()
        for tensor in (stepaf.view(y, (2, 16)), stepaf.view(y, (8, 4))):
            with Raises(stepaf.InvalidError, "key 2 (4, 8)"):
                batch.respond([tensor])
            with Raises(stepaf.InvalidError, "key 2 (4, 8)"):
                batch.respond_tensor(0, tensor)
            with Raises(stepaf.InvalidError, "key 2 (4, 8)"):
                stepaf.respond_many([batch], tensor)
        batch.respond(y)
        for _ in good[1:]:
            ctx.recv().respond(y)
        ctx.recv().release()
        ctx.barrier()
        return
    for tensor in (wide, short):
        with Raises(stepaf.InvalidError, "key 1 (4, 8)"):
            ctx.plan({x_key: tensor}, {y_key: y})
        with Raises(stepaf.InvalidError, "key 2 (4, 8)"):
            ctx.plan({x_key: x}, {y_key: tensor})
        with Raises(stepaf.InvalidError, "key 1 (4, 8)"):
            ctx.push_pull({X: tensor}, {Y: y})
    plan, flat = ctx.plan({x_key: x}, {y_key: y}), ctx.plan({flat_key: x})
    ctx.commit()
    with Raises(stepaf.InvalidError, *words):
        plan.start([wide])
    with Raises(stepaf.InvalidError, "shape is (3, 4)"):
        plan.start(short)
    for tensor in good:
        plan.start([tensor], wait=True).wait()
    flat.start([wide]).wait()  # a key of bytes takes everything
    ctx.barrier()


def too_many(ctx):
    with Raises(stepaf.LimitError):
        for key in range(70000):
            ctx.push_key(key, 1)


class Errors(job.TestCase):
    def test_arguments(self):
        self.run_job(arguments)

    def test_late(self):
        self.run_job(late)

    def test_lost(self):
        self.assertEqual(job.end(job.start(lost)), [0, -signal.SIGKILL])

    def test_uneven(self):
        self.run_job(uneven, 1, 2)

    def test_mismatched(self):
        self.run_job(mismatched)

    def test_other_rows(self):
        self.run_job(other_rows)

    def test_other_elements(self):
        self.run_job(other_elements)

    def test_too_many(self):
        self.run_job(too_many)

    def init_fails(self, cls, *words, env=None, params=None, attn=1, ffn=1):
        """Every rank's Context raises it: the harness' own exit code says only that one was."""
        os.environ.update(env or {})
        os.environ["STEPAF_LOCAL_SIZE"], os.environ["STEPAF_LOCAL_RANK"] = "1", "0"
        os.environ["STEPAF_LOCAL_JOB"] = f"py-errors-{os.getpid()}"
        try:
            with Raises(cls, *words):
                stepaf.Context(**(params or {}))
        finally:
            for name in list(env or {}) + ["STEPAF_LOCAL_SIZE", "STEPAF_LOCAL_RANK"]:
                os.environ.pop(name, None)

    def test_settings(self):
        self.init_fails(stepaf.SettingError, "STEPAF_DEPTH", env={"STEPAF_DEPTH": "deep"})

    def test_splits(self):
        self.init_fails(stepaf.SplitError, env={"STEPAF_SPLIT": "attn=3,ffn=2"})
        self.init_fails(stepaf.SplitError, params={"split": "attn=1,ffn=5"})

    def test_words(self):
        for params in (dict(role="router"), dict(progress="fast"), dict(threads="some")):
            with self.assertRaisesRegex(ValueError, "not one of"):
                stepaf.Context(**params)

    def test_no_transport(self):
        def nothing_reaches(ctx):
            ctx.push_key(X, 64)
            with Raises(stepaf.NoTransportError):
                ctx.commit()

        self.run_job(nothing_reaches, env={"STEPAF_TRANSPORTS": "verbs"})


if __name__ == "__main__":
    job.main()
