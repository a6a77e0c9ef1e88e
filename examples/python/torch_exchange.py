# SPDX-License-Identifier: Apache-2.0
"""Attention ranks send a torch tensor to every FFN rank; FFN rank f answers with f + 1 times it."""

import torch

import stepaf
from stepaf.torch import empty, from_tensor

with stepaf.Context() as ctx:
    x_key = ctx.push_key(1, (128, 512), torch.bfloat16)
    y_key = ctx.pull_key(2, (128, 512), torch.bfloat16)
    if ctx.role == stepaf.Role.ATTENTION:
        x = empty(ctx, (128, 512), torch.bfloat16)
        y = [empty(ctx, (128, 512), torch.bfloat16) for _ in range(ctx.n_ffn)]
        plan = ctx.plan({x_key: x}, [(y_key, each) for each in y])
        ctx.commit()
        for layer in range(3):
            x.fill_(layer + 1)
            plan.start().wait()
            print(f"layer {layer}: " + ", ".join(f"{each.mean().item():g}" for each in y))
    else:
        y = empty(ctx, (128, 512), torch.bfloat16)
        ctx.commit()
        for _ in range(3 * ctx.n_attention):
            batch = ctx.recv()
            torch.mul(from_tensor(batch[0]), ctx.rank + 1, out=y)
            batch.respond(y).wait()
