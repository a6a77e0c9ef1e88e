# SPDX-License-Identifier: Apache-2.0
"""With torch and numpy, where they are installed: tensors in and out, and operators in graphs."""

import unittest

import job
import stepaf

try:
    import torch

    import stepaf.torch as steptorch
except ImportError as error:
    torch = None
    REASON = f"no torch: {error}"
else:
    REASON = ""
try:
    import numpy
except ImportError:
    numpy = None

X, Y, N = 1, 2, 64


@unittest.skipUnless(torch, REASON)
class Tensors(job.TestCase):
    def test_of_torch(self):
        for name in stepaf._core.DTYPES:
            kind = steptorch.dtype(name)
            source = torch.empty((3, 4), dtype=kind)
            tensor = stepaf.as_tensor(source)
            self.assertEqual((tensor.shape, tensor.data_ptr(), tensor.dtype),
                             ((3, 4), source.data_ptr(), name))
            again = steptorch.from_tensor(tensor)
            self.assertEqual((again.shape, again.dtype, again.data_ptr()),
                             (source.shape, kind, source.data_ptr()))
            self.assertEqual(stepaf._types.dtype_name(kind), name)

    def test_what_is_refused(self):
        with self.assertRaisesRegex(stepaf.InvalidError, "not contiguous"):
            stepaf.as_tensor(torch.zeros(4, 4).t())
        with self.assertRaises((BufferError, RuntimeError)):
            stepaf.as_tensor(torch.zeros(4, requires_grad=True))
        self.assertEqual(stepaf.as_tensor(torch.zeros(4, 4)[1:3]).shape, (2, 4))

    def test_lifetime(self):
        tensor = stepaf.as_tensor(torch.arange(10))
        self.assertEqual(memoryview(tensor)[9], 9)
        view = steptorch.from_tensor(tensor)
        del tensor
        self.assertEqual(view[9], 9)

    def test_no_stream(self):
        if torch.cuda.is_available():
            self.skipTest("there is a GPU")
        with self.assertRaisesRegex(stepaf.InvalidError, "no stream is given"):
            stepaf._stream.handle(None)

    def test_streams(self):
        class Torchs:
            cuda_stream = 17

        class Newest:
            def __cuda_stream__(self):
                return 0, 18

        class Cupys:
            ptr = 19

        self.assertEqual([stepaf._stream.handle(kind()) for kind in (Torchs, Newest, Cupys)],
                         [17, 18, 19])
        with self.assertRaises(TypeError):
            stepaf._stream.handle("stream")


def given_back(ctx):
    """A tensor of a batch that has been released."""
    ctx.push_key(X, 8, "f32")
    x = ctx.alloc(8, "f32")
    if ctx.role == stepaf.Role.ATTENTION:
        plan = ctx.plan({X: x})
        ctx.commit()
        plan.start()
        ctx.barrier()
        return
    ctx.commit()
    batch = ctx.recv()
    tensor = batch[0]
    assert numpy.asarray(tensor).shape == (8,)
    batch.release()
    for make in (numpy.asarray, numpy.array, numpy.ascontiguousarray):
        try:
            made = make(tensor)
        except stepaf.HandleError:
            continue
        raise AssertionError(f"{made!r} of a released batch")
    ctx.barrier()


@unittest.skipUnless(numpy, "no numpy")
class Numpy(job.TestCase):
    def test_numpy(self):
        array = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
        tensor = stepaf.as_tensor(array)
        self.assertEqual((tensor.shape, tensor.dtype), ((3, 4), "f32"))
        again = numpy.asarray(tensor)
        self.assertEqual(again.ctypes.data, array.ctypes.data)
        self.assertEqual(numpy.from_dlpack(tensor).ctypes.data, array.ctypes.data)
        with self.assertRaises(stepaf.InvalidError):
            stepaf.as_tensor(array.T)
        array.flags.writeable = False
        self.assertFalse(numpy.asarray(stepaf.as_tensor(array)).flags.writeable)
        for made in (tensor.__array__(), tensor.__array__(numpy.float64, copy=True)):
            self.assertTrue((made == array).all())

    def test_numpys_shapes(self):
        tensor = stepaf.view(stepaf.as_tensor(bytearray(24)), numpy.array([2, 3]), "f32")
        self.assertEqual(tensor.shape, (2, 3))
        self.assertEqual(stepaf.view(tensor, numpy.int64(6)).shape, (6,))

    def test_numpys_other_elements(self):
        with self.assertRaisesRegex(stepaf.InvalidError, "without bytes"):
            stepaf.as_tensor(numpy.zeros(1000, "V0"))
        with self.assertRaisesRegex(BufferError, "33 bytes"):
            stepaf.as_tensor(numpy.array([b"a" * 33, b"b" * 33])).__dlpack__()

    def test_numpy_of_what_has_ended(self):
        """No array of one object, as numpy makes of what it knows nothing of."""
        self.run_job(given_back)


def exchange(ctx):
    """Registered torch memory, received views, answers of torch."""
    ctx.push_key(X, (N, 8), torch.bfloat16)
    ctx.pull_key(Y, (N, 8), torch.float32)
    if ctx.role == stepaf.Role.FFN:
        y = torch.zeros(N, 8)
        ctx.register(y)
        ctx.commit()
        for _ in range(3):
            batch = ctx.recv()
            x = steptorch.from_tensor(batch[0])
            y[:x.shape[0]] = x.float() * 2
            batch.respond(y[:x.shape[0]]).wait()
        return
    x = torch.ones(N, 8, dtype=torch.bfloat16)
    y = steptorch.empty(ctx, (N, 8))
    ctx.register(x)
    plan = ctx.plan({X: x}, {Y: y})
    ctx.commit()
    plan.start().wait()
    assert torch.equal(y, torch.full((N, 8), 2.0))
    x[:4] = 3
    request = plan.start([x[:4]], wait=True)
    request.wait()
    assert torch.equal(steptorch.from_tensor(request.tensor(0)), torch.full((4, 8), 6.0))
    y.zero_()
    ctx.push_pull({X: x[:0]}, {Y: y}).wait()
    assert not y.any()


def compiled(ctx, backend):
    """Whole layers in one graph, whatever the compiler does with the tensors."""
    ctx.push_key(X, (N, 8), torch.float32)
    ctx.pull_key(Y, (N, 8), torch.float32)
    ops = torch.ops.stepaf
    if ctx.role == stepaf.Role.FFN:
        answer = steptorch.empty(ctx, (N, 8))
        server = steptorch.Server(ctx, [answer])
        number = server.handle
        ctx.commit()

        def serve(buffer, weight):
            ops.recv([buffer], number)
            out = buffer * weight
            ops.respond([out], [buffer], number)
            ops.recv([buffer], number)
            ops.respond([buffer + weight], [buffer], number)
            return out.sum()

        run = torch.compile(serve, fullgraph=True, backend=backend) if backend else serve
        buffer, weight = torch.empty(N, 8), torch.full((8,), 3.0)
        for i in range(3):
            assert run(buffer, weight).item() == (i + 1) * 2 * 3 * N * 8
        return
    x, y = steptorch.empty(ctx, (N, 8)), steptorch.empty(ctx, (N, 8))
    plan = ctx.plan({X: x}, {Y: y})
    link = steptorch.Exchange(plan, [x], [y])
    number = link.handle
    ctx.commit()

    def layer(hidden, out):
        ops.start([hidden * 2], [out], number)
        other = hidden.exp()  # meanwhile
        ops.wait([out], number)
        first = out * 1
        ops.start([first], [out], number)
        ops.wait([out], number)
        return first, out + 0, other

    run = torch.compile(layer, fullgraph=True, backend=backend) if backend else layer
    for i in range(3):
        # In the planned place, and elsewhere.
        out = y if i % 2 else torch.empty(N, 8)
        hidden = torch.full((N, 8), float(i + 1))
        first, second, other = run(hidden, out)
        assert torch.equal(first, hidden * 2 * 3), (i, first)
        assert torch.equal(second, first + 3), (i, second)
        assert torch.equal(out, second)
        assert torch.equal(other, hidden.exp())


def in_time(ctx, told):
    """A wait that ends by time is for the same operation when it is called again. A server goes on
    when an answer could not be sent."""
    ctx.push_key(X, 8, torch.float32, depth=2)
    ctx.pull_key(Y, 8, torch.float32, depth=2)
    y = steptorch.empty(ctx, (2, 8))
    if ctx.role == stepaf.Role.FFN:
        ctx.commit()
        server = steptorch.Server(ctx, [y[0]])
        told.wait()
        for i in range(2):
            server.recv([torch.empty(8)])
            server.respond([torch.full((8,), float(i))])
            server._last.wait(60)
            server._last = Unsent()
        server._last = None
        ctx.barrier(timeout=60)
        return
    x = steptorch.empty(ctx, (8,))
    link = steptorch.Exchange(ctx.plan({X: x}, {Y: y[0]}), [x], [y[0]])
    ctx.commit()
    try:
        link.start([x, x])
        raise AssertionError("a tensor too many")
    except stepaf.InvalidError:
        pass
    link.start([torch.ones(8)])
    link.start([torch.ones(8)])
    try:
        link.wait()
        raise AssertionError("an answer")
    except stepaf.TimeoutError:
        told.send()
    for i in range(2):
        out = torch.empty(8)
        while True:
            try:
                link.wait([out])
                break
            except stepaf.TimeoutError:
                continue
        assert torch.equal(out, torch.full((8,), float(i))), (i, out)
    ctx.barrier(timeout=60)


def some_answers(ctx, told):
    """The answer that has come is in its rank's tensor."""
    ctx.push_key(X, 8, torch.float32)
    ctx.pull_key(Y, 8, torch.float32)
    if ctx.role == stepaf.Role.FFN:
        y = steptorch.empty(ctx, (8,)).fill_(ctx.rank + 1)
        ctx.commit()
        batch = ctx.recv()
        if ctx.rank == 0:
            told.wait()
        batch.respond(y).wait()
        ctx.barrier()
        return
    x, y = steptorch.empty(ctx, (8,)), steptorch.empty(ctx, (2, 8))
    plan = ctx.plan({X: x}, [(Y, y[0]), (Y, y[1])])
    ctx.commit()
    plan.set_answers(1)
    link = steptorch.Exchange(plan, [x], [y[0], y[1]])
    link.start()
    outs = [torch.zeros(8), torch.zeros(8)]
    link.wait(outs)
    assert link.answered == (False, True), link.answered
    assert [out[0].item() for out in outs] == [0, 2], outs
    told.send()
    ctx.barrier()


def transposed(ctx):
    """What begins in its place, in another order, is copied."""
    ctx.push_key(X, (4, 4), torch.float32)
    ctx.pull_key(Y, (4, 4), torch.float32)
    y = steptorch.empty(ctx, (4, 4))
    square = torch.arange(16.0).view(4, 4)
    if ctx.role == stepaf.Role.FFN:
        server, x = steptorch.Server(ctx, [y]), torch.empty(4, 4)
        ctx.commit()
        server.recv([x.t()])
        assert torch.equal(x, square), x
        server.respond([y.copy_(square).t()])
        ctx.barrier()
        return
    x = steptorch.empty(ctx, (4, 4)).copy_(square)
    link = steptorch.Exchange(ctx.plan({X: x}, {Y: y}), [x], [y])
    ctx.commit()
    link.start([x.t()])
    link.wait([y.t()])
    assert torch.equal(y, square), y
    ctx.barrier()


class Unsent:
    """Stands for the request of an answer whose rank is lost."""

    @staticmethod
    def wait():
        raise stepaf.PeerLostError("attention rank 7 is lost", -13)


@unittest.skipUnless(torch, REASON)
class Exchange(job.TestCase):
    def test_in_time(self):
        told = job.Signal()
        self.run_job(lambda ctx: in_time(ctx, told), env={"STEPAF_TIMEOUT_US": "300000"})
        told.close()

    def test_exchange(self):
        self.run_job(exchange)

    def test_transposed(self):
        self.run_job(transposed)

    def test_some_answers(self):
        told = job.Signal()
        self.run_job(lambda ctx: some_answers(ctx, told), ffn=2)
        told.close()

    def test_operators(self):
        self.run_job(lambda ctx: compiled(ctx, None))

    def test_compiled(self):
        for backend in ("eager", "aot_eager"):
            with self.subTest(backend):
                self.run_job(lambda ctx: compiled(ctx, backend))

    def test_fakes(self):
        """Shapes without data, as tracing has them."""
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            x = torch.empty(4)
            for op in ("start", "respond"):
                self.assertIsNone(getattr(torch.ops.stepaf, op)([x], [x], 1))
            for op in ("wait", "recv"):
                self.assertIsNone(getattr(torch.ops.stepaf, op)([x], 1))

    def test_a_handle_that_is_not_there(self):
        with self.assertRaisesRegex(stepaf.InvalidError, "has the handle 999"):
            torch.ops.stepaf.wait([torch.empty(1)], 999)


if __name__ == "__main__":
    job.main()
