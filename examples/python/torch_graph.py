# SPDX-License-Identifier: Apache-2.0
"""An exchange in a CUDA graph: attention rank 0 increments and pushes a tensor, the FFN rank doubles it."""

import torch

import stepaf
from stepaf.torch import empty, from_tensor

with stepaf.Context(split="attn=1,ffn=1") as ctx:
    torch.cuda.set_device(ctx.world_rank % torch.cuda.device_count())
    shape = {"shape": (128, 512), "dtype": torch.bfloat16, "device": "cuda"}
    x_key, y_key = ctx.push_key(1, depth=1, **shape), ctx.pull_key(2, depth=1, **shape)
    attention = ctx.role == stepaf.Role.ATTENTION
    x, y = (empty(ctx, (128, 512), torch.bfloat16, device="cuda") for _ in range(2))
    plan = ctx.plan({x_key: x}, {y_key: y}, stream=True) if attention else ctx.plan_ffn([x_key], {y_key: y})
    ctx.commit()

    def step():
        """Enqueue only; wait for nothing."""
        if attention:
            x.add_(1)
            plan.start_on_stream()
            plan.wait_on_stream()
        else:
            plan.recv_on_stream()
            torch.mul(from_tensor(plan.tensor(0, 0, 0)), 2, out=y)
            plan.respond_on_stream()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        step()  # eager, as torch requires before a capture
        torch.cuda.current_stream().synchronize()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            step()
        for layer in range(3):
            graph.replay()
            torch.cuda.current_stream().synchronize()
            plan.status()  # raises the failure, if any
            if attention:
                print(f"replay {layer}: {y.mean().item():g}")
    ctx.barrier()
    graph.reset()
