# SPDX-License-Identifier: Apache-2.0
"""An attention rank pushes x and pulls y, which an FFN rank computes: y = 2 x."""

import stepaf

with stepaf.Context() as ctx:
    x_key, y_key = ctx.push_key(1, 1024, "f32"), ctx.pull_key(2, 1024, "f32")
    x, y = ctx.alloc(1024, "f32"), ctx.alloc(1024, "f32")
    ctx.commit()  # on all ranks: exchanges addresses, once
    if ctx.role == stepaf.Role.ATTENTION:
        memoryview(x)[7] = 21
        ctx.push_pull({x_key: x}, {y_key: y}).wait()
        print(memoryview(y)[7])
    else:
        batch = ctx.recv()
        source, target = memoryview(batch[0]), memoryview(y)  # the receive buffer itself
        for i in range(1024):
            target[i] = 2 * source[i]
        batch.respond(y).wait()
