# SPDX-License-Identifier: Apache-2.0
"""The loops of an engine with experts. Attention ranks keep three microbatches in flight. In each layer they send
every row to the FFN ranks that have its experts, and add up the answers. The number of rows differs between
microbatches, and the number of rows for each FFN rank differs between layers. The result is compared with the same
model computed by one rank alone.

stepaf-run -a 2 -f 2 python engine.py"""

import torch

import stepaf
from stepaf.torch import empty, from_tensor

LAYERS, MICROBATCHES, STEPS = 12, 3, 4
EXPERTS, TOP_K, HIDDEN, TOKENS = 4, 2, 64, 48
ROWS = TOKENS * TOP_K  # at most, to one FFN rank


def noise(seed, *shape):
    """Random numbers that are the same on every rank."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


ROUTERS = [noise(layer, HIDDEN, EXPERTS) for layer in range(LAYERS)]
WEIGHTS = [[noise(1000 + EXPERTS * layer + e, HIDDEN, HIDDEN) / HIDDEN**0.5 for e in range(EXPERTS)]
           for layer in range(LAYERS)]


def attention(x, layer):
    """A stand-in for an attention layer."""
    return torch.tanh(x + 0.01 * layer)


def route(x, layer):
    """The weights and the indices of each row's experts."""
    return torch.softmax(x @ ROUTERS[layer], -1).topk(TOP_K)


def tokens_of(rank, number, step):
    """The number of rows of a microbatch: none, one, all, or another number."""
    return (0, 1, TOKENS, 7, 31, 16)[(3 * rank + 2 * number + step) % 6]


def alone(x):
    """All layers, computed without any other rank."""
    for layer in range(LAYERS):
        x = attention(x, layer)
        weights, experts = route(x, layer)
        y = torch.stack([x @ each for each in WEIGHTS[layer]], 1)  # row, expert
        chosen = y.gather(1, experts[:, :, None].expand(-1, -1, HIDDEN))
        x = x + (chosen * weights[:, :, None]).sum(1)
    return x


class Microbatch:
    """Keys, buffers and a plan of depth 1 of its own, which all layers use one after the other."""

    def __init__(self, ctx, number):
        per_rank = EXPERTS // ctx.n_ffn
        self.head_key = ctx.push_key(10 * number, 1 + per_rank, "i64")  # layer, rows for each expert
        self.rows_key = ctx.push_key(10 * number + 1, (ROWS, HIDDEN), "f32")
        self.answer_key = ctx.pull_key(10 * number + 2, (ROWS, HIDDEN), "f32")
        if ctx.role == stepaf.Role.FFN:  # a buffer for each attention rank's answer
            self.y = [empty(ctx, (ROWS, HIDDEN), torch.float32) for _ in range(ctx.n_attention)]
            return
        self.heads = empty(ctx, (ctx.n_ffn, 1 + per_rank), torch.int64)
        self.rows = empty(ctx, (ROWS, HIDDEN), torch.float32)
        self.answers = [empty(ctx, (ROWS, HIDDEN), torch.float32) for _ in range(ctx.n_ffn)]
        self.plan = ctx.plan({self.head_key: self.heads[0], self.rows_key: self.rows},
                             [(self.answer_key, each) for each in self.answers], scatter=True)
        self.request = None

    def begin(self, layer):
        """Compute attention and send the rows. Does not wait."""
        self.x = x = attention(self.x, layer)
        if not len(x):
            return
        self.weights, experts = route(x, layer)
        self.order = experts.flatten().argsort(stable=True)  # by expert, and therefore by FFN rank
        self.rows[:len(self.order)] = x[self.order // TOP_K]
        self.heads[:, 0] = layer
        counts = experts.flatten().bincount(minlength=EXPERTS).view(len(self.heads), -1)
        self.heads[:, 1:] = counts
        push, at = [], 0  # the tensors of FFN rank 0, those of FFN rank 1, ...
        self.sizes = counts.sum(1).tolist()
        for head, n in zip(self.heads, self.sizes):
            push += [head, self.rows[at:at + n]] if n else [None, None]  # this rank is left out
            at += n
        self.request = self.plan.start(push)

    def end(self):
        """Wait for the answers, and add them."""
        if self.request is None:
            return
        self.request.wait()
        self.request = None
        got = torch.cat([y[:n] for y, n in zip(self.answers, self.sizes)])
        y = torch.empty_like(got)
        y[self.order] = got
        self.x = self.x + (y.view(-1, TOP_K, HIDDEN) * self.weights[:, :, None]).sum(1)


def attend(ctx, microbatches):
    """Returns the number of rows that went through all layers."""
    total = 0
    for step in range(STEPS):
        inputs = [noise(100 * step + 10 * ctx.rank + number, tokens_of(ctx.rank, number, step), HIDDEN)
                  for number in range(MICROBATCHES)]
        for m, x in zip(microbatches, inputs):
            m.x = x
        for layer in range(LAYERS):
            for m in microbatches:
                m.end()  # of the previous layer; the other two are in flight meanwhile
                m.begin(layer)
        for m, x in zip(microbatches, inputs):
            m.end()
            torch.testing.assert_close(m.x, alone(x), rtol=1e-3, atol=1e-4)
            total += len(x)
    return total


def serve(ctx, microbatches):
    """Answer every batch until no attention rank is left. Returns the number of batches."""
    per_rank, served = EXPERTS // ctx.n_ffn, 0
    while True:
        try:
            batch = ctx.recv(timeout=1)
        except stepaf.TimeoutError:
            continue  # idle
        except stepaf.PeerLostError:
            return served
        head, rows = from_tensor(batch[0]).tolist(), from_tensor(batch[1])
        # batch.plan numbers the plans of an attention rank in order of creation. The next batch of the same plan
        # implies that the previous answer has been read, so no wait is needed here.
        y, at = microbatches[batch.plan].y[batch.attention_rank], 0
        for weights, n in zip(WEIGHTS[head[0]][ctx.rank * per_rank:], head[1:]):
            torch.mm(rows[at:at + n], weights, out=y[at:at + n])
            at += n
        batch.respond(y[:at])  # also gives the batch back: do not read rows any more
        served += 1


with stepaf.Context() as ctx:
    microbatches = [Microbatch(ctx, number) for number in range(MICROBATCHES)]
    ctx.commit()
    if ctx.role == stepaf.Role.FFN:
        print(f"FFN rank {ctx.rank}: {serve(ctx, microbatches)} batches")
    else:
        print(f"attention rank {ctx.rank}: {attend(ctx, microbatches)} rows, as computed alone")
