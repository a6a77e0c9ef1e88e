# SPDX-License-Identifier: Apache-2.0
"""A step of each role, run as it is or as a CUDA graph, and what it takes without the exchange."""

import time

import torch

WARM = 2


class Nothing:
    """In the place of an exchange: the same tensors, and nobody to wait for."""

    def __init__(self, exchange, sizes):
        self.push, self.pull, self.answer = exchange.push, exchange.pull, exchange.answer
        s = sizes
        self._received = [[torch.zeros(s.rows, width, dtype=dtype, device=s.device)
                           for width, dtype in s.pushes] for _ in range(exchange.n_attention)]

    def start(self, m, layer):
        pass

    def wait(self, m):
        pass

    def recv(self, m):
        return self._received

    def respond(self, m):
        pass

    def finish(self):
        pass


class AttentionRank:
    """Steps of an attention rank: a token for each of its sequences."""

    def __init__(self, model, batches):
        self.model, self.batches = model, batches

    def step(self, exchange):
        """While FFN ranks have some microbatches, another one's attention is computed."""
        for number in range(self.model.config.layers):
            for m, batch in enumerate(self.batches):
                if number == 0:
                    self.model.embed(batch)
                else:
                    exchange.wait(m)
                    self.model.add(batch, exchange.pull[m])
                self.model.layer(batch, number, exchange.push[m])
                exchange.start(m, number)
        for m, batch in enumerate(self.batches):
            exchange.wait(m)
            self.model.add(batch, exchange.pull[m])
            self.model.choose(batch)
        exchange.finish()

    def reset(self):
        """Back to the first token."""
        for batch in self.batches:
            batch.reset()


class FfnRank:
    """Steps of an FFN rank, which knows how many there are, and nothing of sequences."""

    def __init__(self, model, microbatches):
        self.model, self.microbatches = model, microbatches

    def step(self, exchange):
        """Each layer of each microbatch, in the order in which attention ranks start them."""
        for number in range(len(self.model.layers)):
            for m in range(self.microbatches):
                parts = exchange.recv(m)
                if len(parts) == 1:
                    together = parts[0]
                else:
                    together = [torch.cat(tensors) for tensors in zip(*parts)]
                self.model.layer(number, *together, exchange.answer[m])
                exchange.respond(m)
        exchange.finish()

    def reset(self):
        """Nothing to be done."""


class Runner:
    """Runs steps of a rank over an exchange: as they are, or as one graph."""

    def __init__(self, rank, exchange, device, graph):
        self._rank, self._exchange = rank, exchange
        self._cuda = device.type == "cuda"
        self._graph = None
        for _ in range(WARM):
            self.one()
        if graph:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=torch.cuda.current_stream()):
                rank.step(exchange)
        rank.reset()
        self.sync()

    def sync(self):
        """Wait for the GPU."""
        if self._cuda:
            torch.cuda.current_stream().synchronize()

    def one(self):
        """Run a step; returns when it is done, and how many seconds that took."""
        begin = time.perf_counter()
        if self._graph is None:
            self._rank.step(self._exchange)
        else:
            self._graph.replay()
        self.sync()
        return time.perf_counter() - begin

    def close(self):
        """Drop the graph, before the exchange that it is made of."""
        if self._graph is not None:
            self._graph.reset()


def run(runner, exchange, steps):
    """The seconds of each step; raises at the first that failed."""
    times = []
    for _ in range(steps):
        times.append(runner.one())
        exchange.check()
    return times


def bare(rank, exchange, sizes, graph):
    """Seconds of a step without the exchange: with one role at work at a time, at the median, and with all
    at work until each has made as many steps. The second counts where ranks share a GPU, or cores: then
    it is what these take for all the work, in whatever order. It is a mean, because who has ended
    leaves the others the whole GPU, and a step is short or long by that."""
    runner = Runner(rank, Nothing(exchange, sizes), sizes.device, graph)
    alone = 0.0
    for turn in (True, False):
        exchange.barrier()
        if turn == exchange.attention:
            times = sorted(runner.one() for _ in range(sizes.bare))
            alone = times[len(times) // 2]
            rank.reset()
            runner.sync()
    exchange.barrier()
    together = sum(runner.one() for _ in range(sizes.bare)) / sizes.bare
    exchange.barrier()
    runner.close()
    return alone, together


def ideal(attention, ffn, layers, microbatches):
    """Seconds of a step of ranks that take so long without an exchange, if one took no time and each role had
    a GPU of its own."""
    parts = layers * microbatches
    attention, ffn = attention / parts, ffn / parts
    attends = serves = 0.0
    back = [0.0] * microbatches
    for _ in range(layers):
        for m in range(microbatches):
            attends = max(attends, back[m]) + attention
            serves = back[m] = max(serves, attends) + ffn
    return max(attends, serves)
