# SPDX-License-Identifier: Apache-2.0
"""Tensors in GPU memory: streams and graphs of torch, compiled operators, what is shared with torch and
cupy, and fserver_lib. Ranks take GPUs in turn; one GPU does."""

import unittest

import fserver_job
import job
import stepaf

try:
    import torch

    import stepaf.torch as steptorch
except ImportError as error:
    torch = None
    REASON = f"no torch: {error}"
else:
    REASON = job.NO_GPU

X, Y, N = 1, 2, 4096
EAGER, REPLAYS = 3, 5


def take_device(ctx):
    torch.cuda.set_device(ctx.world_rank % torch.cuda.device_count())


def prepare(ctx):
    take_device(ctx)
    ctx.push_key(X, (N, 8), torch.bfloat16, device="cuda")
    ctx.pull_key(Y, (N, 8), torch.float32, device="cuda")
    if ctx.role == stepaf.Role.ATTENTION:
        x = steptorch.empty(ctx, (N, 8), torch.bfloat16, device="cuda")
        y = steptorch.empty(ctx, (N, 8), torch.float32, device="cuda")
        plan = ctx.plan({X: x}, {Y: y}, stream=True)
        ctx.commit()
        return plan, x, y
    y = steptorch.empty(ctx, (N, 8), torch.float32, device="cuda")
    plan = ctx.plan_ffn([X], [(Y, y)])
    ctx.commit()
    return plan, steptorch.from_tensor(plan.tensor(0, 0, 0)), y


def on_a_stream(ctx, layer, check):
    """Eager first, then the same captured."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(EAGER):
            layer()
            stream.synchronize()
            check(i + 1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        layer()
    for i in range(REPLAYS):
        graph.replay()
        torch.cuda.synchronize()
        check(EAGER + i + 1)
    ctx.barrier()
    graph.reset()


def streamed(ctx):
    plan, x, y = prepare(ctx)
    assert plan.is_stream and x.is_cuda and y.is_cuda

    def attend():
        x.add_(1)
        plan.start_on_stream()
        plan.wait_on_stream()

    def serve():
        plan.recv_on_stream()
        torch.mul(x, 2, out=y)
        plan.respond_on_stream()

    def check(i):
        plan.status()
        if ctx.role == stepaf.Role.ATTENTION:
            assert y.eq(2 * i).all().item(), (i, y[0, 0].item())

    on_a_stream(ctx, attend if ctx.role == stepaf.Role.ATTENTION else serve, check)


def plan_tensors(ctx):
    """Where a plan receives: at attention ranks in memory of the caller's, with its readers."""
    take_device(ctx)
    ctx.push_key(X, (N, 8), torch.float32, depth=1, device="cuda")
    ctx.pull_key(Y, (N, 8), torch.float32, depth=1, device="cuda")
    x, y = (ctx.alloc((N, 8), "f32", device="cuda") for _ in range(2))
    attention = ctx.role == stepaf.Role.ATTENTION
    plan = ctx.plan({X: x}, {Y: y}, stream=True) if attention else ctx.plan_ffn([X], {Y: y})
    ctx.commit()
    tensor = plan.tensor(0, 0, 0)
    ctx.barrier()
    if attention:
        reader = steptorch.from_tensor(tensor)
        plan.destroy()
        assert tensor.valid and reader.data_ptr() == y.data_ptr()
        try:
            ctx.free(y)
            raise AssertionError("memory that is being read is freed")
        except BufferError:
            del reader
        ctx.free(y)
    else:
        plan.destroy()
    assert not tensor.valid
    ctx.barrier()


def by_operators(ctx):
    """The same by operators, compiled; the answer goes to a tensor of the caller's."""
    plan, x, y = prepare(ctx)
    ops = torch.ops.stepaf
    if ctx.role == stepaf.Role.ATTENTION:
        link = steptorch.Exchange(plan, [x], [y])
        number, source = link.handle, torch.zeros_like(x)
        out = torch.empty_like(y)

        def body(source, out):
            ops.start([source + 1], [out], number)
            ops.wait([out], number)
            return source + 1

        run = torch.compile(body, fullgraph=True, backend="aot_eager")

        def layer():
            source.copy_(run(source, out))
    else:
        server = steptorch.Server(ctx, [y], plan)
        number, buffer = server.handle, torch.empty_like(x)

        def body(buffer):
            ops.recv([buffer], number)
            ops.respond([buffer.float() * 2], [buffer], number)

        run = torch.compile(body, fullgraph=True, backend="aot_eager")

        def layer():
            run(buffer)

    def check(i):
        plan.status()
        if ctx.role == stepaf.Role.ATTENTION:
            assert out.eq(2 * i).all().item(), (i, out[0, 0].item())

    on_a_stream(ctx, layer, check)


def by_host(ctx):
    """Operators on a plan of the host, with tensors on the GPU that a slow stream has yet to write."""
    take_device(ctx)
    ctx.push_key(X, (N, 8), torch.float32, depth=1, device="cuda")
    ctx.pull_key(Y, (N, 8), torch.float32, depth=1, device="cuda")
    x, y, out = (steptorch.empty(ctx, (N, 8), torch.float32, device="cuda") for _ in range(3))
    if ctx.role == stepaf.Role.ATTENTION:
        link = steptorch.Exchange(ctx.plan({X: x}, {Y: y}), [x], [y])
    else:
        link = steptorch.Server(ctx, [y])
    ctx.commit()
    with torch.cuda.stream(torch.cuda.Stream()):
        for step in range(1, 7):
            if ctx.role == stepaf.Role.ATTENTION:
                torch.cuda._sleep(20_000_000)
                link.start([x.fill_(step) if step % 2 else torch.full_like(x, step)])
                link.wait([out])
                assert out.eq(3 * step).all().item(), (step, out[0, 0].item())
            else:
                link.recv([out])
                torch.cuda._sleep(20_000_000)
                link.respond([torch.mul(out, 3, out=y) if step % 2 else out * 3])
    ctx.barrier()


def two_streams(ctx):
    """A plan for each of two streams, which overlap; sizes that change; what has arrived is told."""
    take_device(ctx)
    attention, plans = ctx.role == stepaf.Role.ATTENTION, []
    for i in range(2):
        x_key = ctx.push_key(10 * i + X, (N, 8), torch.float32, depth=1, device="cuda")
        y_key = ctx.pull_key(10 * i + Y, (N, 8), torch.float32, depth=1, device="cuda")
        x, y = (steptorch.empty(ctx, (N, 8), torch.float32, device="cuda") for _ in range(2))
        plans.append((ctx.plan({x_key: x}, {y_key: y}, stream=True) if attention else
                      ctx.plan_ffn([x_key], {y_key: y}), x, y, torch.cuda.Stream()))
    ctx.commit()
    for step in range(1, 9):
        rows = N // step
        for i, (plan, x, y, stream) in enumerate(plans):
            with torch.cuda.stream(stream):
                if attention:
                    x[:rows].fill_(step + i)
                    plan.start_on_stream(None, [x[:rows]])
                    plan.wait_on_stream(stream)
                else:
                    plan.recv_on_stream(stream.cuda_stream)
                    torch.add(steptorch.from_tensor(plan.tensor(0, 0, 0)), 100, out=y)
                    plan.respond_on_stream(None, [rows * 32])
        torch.cuda.synchronize()
        for i, (plan, x, y, stream) in enumerate(plans):
            plan.status()
            if attention:
                assert y[:rows].eq(100 + step + i).all().item(), (step, i)
            else:
                told = torch.as_tensor(plan.arrived_bytes(0, 1), device="cuda")
                assert told.item() == rows * 32, (told, rows)
    counts = None if attention else plans[0][0].arrived_bytes(0, 1)
    ctx.barrier()
    ctx.push_key(99, 8)
    ctx.commit()
    if counts:  # which were valid until then
        assert not counts.valid
        try:
            counts.data_ptr()
        except stepaf.HandleError as error:
            assert "last commit" in error.text, error
        else:
            raise AssertionError("an address of memory that may be freed")
    ctx.barrier()


def all_types(ctx):
    """Each element type that torch has on a GPU, byte for byte; by the host and by streams."""
    take_device(ctx)
    attention, kept = ctx.role == stepaf.Role.ATTENTION, []
    names = list(stepaf._core.DTYPES)
    for number, name in enumerate(names):
        kind = steptorch.dtype(name)
        keys = [declare(8 * number + place, (64, 33), kind, depth=1, device="cuda")
                for place, declare in ((1, ctx.push_key), (2, ctx.pull_key), (3, ctx.push_key), (4, ctx.pull_key))]
        x, y, z = (steptorch.empty(ctx, (64, 33), kind, device="cuda") for _ in range(3))
        assert x.dtype == y.dtype == kind and x.is_cuda
        raw = torch.arange(x.numel() * x.element_size(), device="cuda").add_(number).to(torch.uint8)
        if attention:
            kept.append((ctx.plan({keys[0]: x}, {keys[1]: y}),
                         ctx.plan({keys[2]: x}, {keys[3]: z}, stream=True), x, y, z, raw))
            x.view(torch.uint8).view(-1).copy_(raw)
        else:
            kept.append((ctx.plan_ffn([keys[2]], {keys[3]: z}), y, z, kind))
    ctx.commit()
    torch.cuda.synchronize()
    for each in kept:
        if attention:
            by_host, by_stream, x, y, z, raw = each
            by_host.start().wait()
            by_stream.start_on_stream()
            by_stream.wait_on_stream()
            torch.cuda.synchronize()
            for answer in (y, z):
                assert torch.equal(answer.view(torch.uint8).view(-1), raw), x.dtype
        else:
            plan, y, z, kind = each
            with ctx.recv() as batch:
                came = steptorch.from_tensor(batch[0])
                assert came.dtype == kind and came.is_cuda
                y.view(torch.uint8).copy_(came.view(torch.uint8))
                torch.cuda.synchronize()
                batch.respond([y]).wait()
            plan.recv_on_stream()
            z.view(torch.uint8).copy_(steptorch.from_tensor(plan.tensor(0, 0, 0)).view(torch.uint8))
            plan.respond_on_stream()
            torch.cuda.synchronize()
            plan.status()
    ctx.barrier()


def shared(ctx):
    """Memory of the library's in torch and cupy, and theirs in the library, without a copy."""
    take_device(ctx)
    import importlib.util
    mine = ctx.alloc((4, 8), "f32", device="cuda")
    assert mine.device.startswith("cuda"), mine.device
    by_dlpack = torch.from_dlpack(mine)
    by_array = torch.as_tensor(mine, device="cuda")
    said = mine.__cuda_array_interface__
    assert said["data"][0] == by_dlpack.data_ptr() == by_array.data_ptr() == mine.data_ptr()
    assert said["shape"] == (4, 8) and said["typestr"] == "<f4", said
    by_dlpack.fill_(3)
    torch.cuda.synchronize()
    assert by_array.sum().item() == 96
    for source in (by_dlpack[1:3], torch.ones(6, device="cuda", dtype=torch.bfloat16)):
        back = stepaf.as_tensor(source)
        assert back.data_ptr() == source.data_ptr() and back.shape == tuple(source.shape)
        assert back.device == mine.device, (back.device, mine.device)
    if importlib.util.find_spec("cupy"):
        import cupy
        with cupy.cuda.Device(torch.cuda.current_device()):
            for array in (cupy.asarray(mine), cupy.from_dlpack(mine)):
                assert array.data.ptr == mine.data_ptr() and float(array.sum()) == 96
            theirs = cupy.arange(8, dtype=cupy.float32)
            assert stepaf.as_tensor(theirs).data_ptr() == theirs.data.ptr
            assert stepaf._stream.handle(cupy.cuda.Stream()) != 0
        print("with cupy", cupy.__version__)
    else:
        print("cupy is not installed: not tried")
    # A tensor of torch's allocator is the source, and another one the destination.
    x_key = ctx.push_key(X, (N, 8), torch.float32, depth=1, device="cuda")
    y_key = ctx.pull_key(Y, (N, 8), torch.float32, depth=1, device="cuda")
    x, y = torch.full((N, 8), 5.0, device="cuda"), torch.zeros(N, 8, device="cuda")
    torch.cuda.synchronize()
    ctx.register(x)
    ctx.register(y)
    if ctx.role == stepaf.Role.ATTENTION:
        plan = ctx.plan({x_key: x}, {y_key: y})
        ctx.commit()
        for step in range(3):
            x.fill_(step)
            torch.cuda.synchronize()
            plan.start().wait()
            assert y.eq(2 * step).all().item(), step
    else:
        ctx.commit()
        for _ in range(3):
            with ctx.recv() as batch:
                torch.mul(steptorch.from_tensor(batch[0]), 2, out=y)
                torch.cuda.synchronize()
                batch.respond([y]).wait()
    ctx.barrier()


def fserver_worker(f, rank):
    torch.cuda.set_device(0)
    f.init()
    x, y = torch.full((4, 8), 2.0, device="cuda"), torch.zeros(4, 8, device="cuda")
    for step in range(5):
        with torch.cuda.stream(torch.cuda.Stream()):
            x.fill_(step)  # ordered before the push by the stream alone
            handle = f.push_pull([x], [1], [y], [2])
            f.wait(handle)
            assert y.eq(step + 1).all().item(), step
    f.stop()


def helpers(ctx):
    """What of fserver_lib's helpers for graphs there is on a GPU."""
    import fserver_lib as f
    take_device(ctx)
    seq, flag = (torch.zeros(1, dtype=torch.int64, device="cuda") for _ in range(2))
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        f.seq_add_one(seq)
        f.write_flag(flag, seq)
    for i in range(3):
        graph.replay()
        torch.cuda.synchronize()
        assert seq.item() == flag.item() == i + 1
    fserver_job.raises(NotImplementedError, "start_on_stream", f.wait_flag, flag, seq)
    graph.reset()


def fserver_server(f, rank):
    torch.cuda.set_device(torch.cuda.device_count() - 1)
    f.init()
    where = torch.zeros(4, 8, device="cuda")
    f.register_recv_buffer(where, [0], [1])
    for step in range(5):
        (handle, (x,), keys), = f.get_batch()
        assert x.is_cuda and keys == [1] and x.data_ptr() == where.data_ptr()
        f.respond([x + 1], handle)
    f.stop()


@unittest.skipIf(REASON, REASON)
class Gpu(job.TestCase):
    def test_streamed(self):
        self.run_job(streamed)

    def test_plan_tensors(self):
        self.run_job(plan_tensors)

    def test_two_streams(self):
        self.run_job(two_streams)

    def test_by_operators(self):
        self.run_job(by_operators)

    def test_by_host(self):
        self.run_job(by_host)

    def test_all_types(self):
        self.run_job(all_types)

    def test_shared(self):
        self.run_job(shared)

    def test_helpers(self):
        self.run_job(helpers)

    def test_fserver(self):
        codes = job.end(fserver_job.start(fserver_worker, fserver_server))
        self.assertEqual(codes, [0, 0])


if __name__ == "__main__":
    job.main()
