# SPDX-License-Identifier: Apache-2.0
"""Tensors by the package stepaf. exchange_dist.py has the same methods over torch.distributed.

Each microbatch has a plan of its own, of depth 1. On a GPU it is a stream plan: the four calls only
enqueue on torch's current stream, and can be captured. On the CPU the host starts and waits.
"""

import torch

import stepaf
from stepaf.torch import empty, from_tensor

HIDDEN, IDS, WEIGHTS, SUM = 1, 2, 3, 4  # keys; + 8 * microbatch
SAID, HEARD = 5, 6


class StepafExchange:
    """What both roles have: push[m] and pull[m] are an attention rank's tensors of microbatch m,
    answer[m] is an FFN rank's, with the rows of all attention ranks."""

    def __init__(self, sizes):
        self._sizes = s = sizes
        self._stream = s.device.type == "cuda"
        self._context = ctx = stepaf.Context()
        self.attention = ctx.role == stepaf.Role.ATTENTION
        self.rank, self.n_attention, self.n_ffn = ctx.rank, ctx.n_attention, ctx.n_ffn
        self._declare_report()
        self.push, self.pull, self.answer, self._plans = [], [], [], []
        for m in range(s.microbatches):
            (self._plan_attention if self.attention else self._plan_ffn)(*self._declare(8 * m))
        ctx.commit()
        self._requests = [None] * s.microbatches
        if not self.attention and self._stream:
            self._received = [[[from_tensor(plan.tensor(0, peer, i)) for i in range(3)]
                               for peer in range(self.n_attention)] for plan in self._plans]

    def _declare(self, first):
        s, ctx = self._sizes, self._context
        where = {"depth": 1, "device": s.device.type}
        return ([ctx.push_key(first + HIDDEN, (s.rows, s.hidden), s.dtype, **where),
                 ctx.push_key(first + IDS, (s.rows, s.top_k), torch.int32, **where),
                 ctx.push_key(first + WEIGHTS, (s.rows, s.top_k), torch.float32, **where)],
                ctx.pull_key(first + SUM, (s.rows, s.hidden), s.dtype, **where))

    def _empty(self, *shape, dtype):
        return empty(self._context, shape, dtype, device=self._sizes.device.type)

    def _plan_attention(self, keys, answer):
        s = self._sizes
        push = [self._empty(s.rows, width, dtype=dtype) for width, dtype in s.pushes]
        pull = [self._empty(s.rows, s.hidden, dtype=s.dtype) for _ in range(self.n_ffn)]
        self._plans.append(self._context.plan(list(zip(keys, push)), [(answer, each) for each in pull],
                                              stream=self._stream))
        self.push.append(push)
        self.pull.append(pull)

    def _plan_ffn(self, keys, answer):
        s = self._sizes
        out = self._empty(self.n_attention * s.rows, s.hidden, dtype=s.dtype)
        if self._stream:
            parts = [(answer, part) for part in out.split(s.rows)]
            self._plans.append(self._context.plan_ffn(keys, parts))
        self.answer.append(out)

    # ---- attention ranks

    def start(self, m, _layer):
        """Send what is in push[m]."""
        if self._stream:
            self._plans[m].start_on_stream()
        else:
            self._requests[m] = self._plans[m].start()

    def wait(self, m):
        """Wait for the answers, in pull[m]."""
        if self._stream:
            self._plans[m].wait_on_stream()
        else:
            self._requests[m].wait()

    # ---- FFN ranks

    def recv(self, m):
        """What each attention rank has pushed for microbatch m: lists of three tensors, in rank order."""
        if self._stream:
            self._plans[m].recv_on_stream()
            return self._received[m]
        # Each attention rank starts its microbatches in order, so that these are of microbatch m.
        self._requests[m] = batches = self._context.recv_each()
        return [[from_tensor(tensor) for tensor in batch] for batch in batches]

    def respond(self, m):
        """Answer with what is in answer[m]. It may be written again when the next of m is received:
        then the attention ranks have this one."""
        if self._stream:
            self._plans[m].respond_on_stream()
        else:
            batches, self._requests[m] = self._requests[m], None
            stepaf.respond_many(batches, self.answer[m])

    # ---- the end of a step, and of all

    def finish(self):
        """The end of a step, which may be captured: nothing is left to be done."""

    def check(self):
        """Raise what has failed on a stream."""
        for plan in self._plans:
            if plan.is_stream:
                plan.status()

    def barrier(self):
        """Wait for all ranks."""
        self._context.barrier()

    def _declare_report(self):
        s, ctx = self._sizes, self._context
        world = self.n_attention + self.n_ffn
        said = ctx.push_key(SAID, (1, s.report), torch.float64, depth=1)
        heard = ctx.pull_key(HEARD, (world, s.report), torch.float64, depth=1)
        if self.attention:
            self._said = empty(ctx, (1, s.report), torch.float64)
            self._heard = [empty(ctx, (world, s.report), torch.float64) for _ in range(self.n_ffn)]
            self._report = ctx.plan({said: self._said}, [(heard, each) for each in self._heard])
        else:
            self._heard = empty(ctx, (self.n_attention * world, s.report), torch.float64)

    def gather(self, numbers):
        """The numbers of all ranks, attention ranks first, at attention ranks; FFN ranks get None."""
        n, world = self.n_attention, self.n_attention + self.n_ffn
        if not self.attention:
            batches = self._context.recv_each()
            table = self._heard.view(n, world, -1)
            for a, batch in enumerate(batches):
                table[:, a] = from_tensor(batch[0])
            table[:, n + self.rank] = numbers
            stepaf.respond_many(batches, self._heard, [world] * n)
            self._context.barrier()  # which nobody passes without an answer
            return None
        self._said[0] = numbers
        self._report.start().wait()
        self._context.barrier()
        parts = [self._heard[0][:n]] + [heard[n + f:n + f + 1] for f, heard in enumerate(self._heard)]
        return torch.cat(parts)

    def close(self):
        """Leave the job."""
        self._context.close()
