# SPDX-License-Identifier: Apache-2.0
"""Streams and graphs of torch, on a GPU that both ranks share."""

import os
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
    # Asking torch would make the GPU unusable to forked ranks.
    REASON = "" if os.path.exists("/dev/nvidia0") else "no GPU: there is no /dev/nvidia0"

X, Y, N = 1, 2, 4096
EAGER, REPLAYS = 3, 5


def prepare(ctx):
    torch.cuda.set_device(0)
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


@unittest.skipIf(REASON, REASON)
class Gpu(job.TestCase):
    def test_streamed(self):
        self.run_job(streamed)

    def test_by_operators(self):
        self.run_job(by_operators)


if __name__ == "__main__":
    job.main()
