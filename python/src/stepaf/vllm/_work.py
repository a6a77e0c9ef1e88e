# SPDX-License-Identifier: Apache-2.0
"""The stages of the asynchronous connector: every attention rank pushes its rows to every FFN rank, with
the experts that each row has chosen, and FFN ranks take what has arrived, whoever has sent it.

Beside the rows goes one tensor: eight bytes that say layer, stage and rows, then ids and weights. On a GPU
an FFN rank has a stream for each stage, on which it waits for a batch of any peer and then copies these
words to the host, which sees an event: attention ranks do nothing on their hosts, so that their part can
be a graph.
"""

from __future__ import annotations

import collections
import threading
import time
from typing import Any, Deque, List, NamedTuple, Optional, Tuple

import torch

from .. import _core
from .._context import Context
from .._core import Batch, Request
from .._errors import HandleError, InvalidError, ProtocolError, StateError, StepafError, TimeoutError
from ..torch import empty, from_tensor
from ._link import Inbox, rows_of, stage_key
from ._settings import Shape
from ._stages import Operations, Stages, closed, error
from ._topology import Topology

_MARK = 0x5A
_HEAD = 8


def pack(layer: int, stage: int, rows: int) -> int:
    """The first eight bytes of a side tensor."""
    return layer | stage << 16 | _MARK << 24 | rows << 32


class _WorkStages(Stages):
    def __init__(self, context: Context, topology: Topology, shape: Shape) -> None:
        super().__init__(context, topology, shape)
        if not shape.top_k:
            raise ValueError("the model names no num_experts_per_tok")
        self.side_bytes = _HEAD + shape.tokens * shape.top_k * 8
        where: Any = {"depth": 1, "device": shape.device}
        rows = (shape.tokens, shape.hidden)
        self.keys = [(context.push_key(stage_key(stage, 0), rows, shape.dtype, **where),
                      context.push_key(stage_key(stage, 1), self.side_bytes, **where),
                      context.pull_key(stage_key(stage, 2), rows, shape.dtype, **where))
                     for stage in range(shape.stages)]

    def routing(self, side: torch.Tensor, rows: int) -> Tuple[torch.Tensor, torch.Tensor]:
        """Ids and weights of the rows of a side tensor, in place."""
        k = self.shape.top_k
        middle = _HEAD + rows * k * 4
        return (side[_HEAD:middle].view(torch.int32).view(rows, k),
                side[middle:middle + rows * k * 4].view(torch.float32).view(rows, k))


class WorkAttention(_WorkStages):
    """An attention rank's: a plan for each stage, whose answers are added up."""

    def __init__(self, context: Context, topology: Topology, shape: Shape) -> None:
        super().__init__(context, topology, shape)
        self._x = [self._empty(context) for _ in self.keys]
        self._side = [empty(context, (self.side_bytes,), torch.uint8, device=shape.device) for _ in self.keys]
        self._y = [[self._empty(context) for _ in self.peers] for _ in self.keys]
        self._plans = [context.plan({keys[0]: x, keys[1]: side}, [(keys[2], each) for each in y],
                                    stream=self.streams)
                       for keys, x, side, y in zip(self.keys, self._x, self._side, self._y)]
        self._operations = Operations(shape, self.peers, self._plans)

    def ready(self) -> None:
        """After the commit."""

    def send(self, hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, layer: int,
             stage: int) -> None:
        """Copy rows and routing to their registered places, and start. Waits for nothing."""
        rows = hidden.shape[0]
        self._operations.expect_none(stage)
        wanted = (rows, self.shape.top_k)
        if tuple(ids.shape) != wanted or tuple(weights.shape) != wanted or not 0 < rows <= self.shape.tokens:
            raise error(InvalidError, "INVALID", f"{rows} rows (at most {self.shape.tokens}), topk_ids "
                        f"{tuple(ids.shape)} and topk_weights {tuple(weights.shape)}: not {wanted}")
        if not 0 <= layer < 1 << 16:
            raise error(InvalidError, "INVALID", f"layer {layer}")
        side = self._side[stage]
        to_ids, to_weights = self.routing(side, rows)
        self._x[stage][:rows].copy_(hidden)
        side[:_HEAD].view(torch.int64).fill_(pack(layer, stage, rows))
        to_ids.copy_(ids)
        to_weights.copy_(weights)
        sources: List[Any] = [self._x[stage][:rows], side[:_HEAD + rows * self.shape.top_k * 8]]
        self._operations.start(stage, rows, sources)

    def recv(self, out: torch.Tensor, stage: int) -> None:
        """Write the sum of all answers to out: on the current stream, or after a wait for them."""
        rows = out.shape[0]
        request = self._operations.finish(stage, rows, self.timeout)
        for i, y in enumerate(self._y[stage]):
            self._operations.check_answer(request, stage, i, rows)
            if i:
                out.add_(y[:rows])
            else:
                out.copy_(y[:rows])


class Arrival(NamedTuple):
    """A batch of one attention rank, in place: valid until it is answered."""

    peer: int
    stage: int
    layer: int
    hidden: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor
    batch: Optional[Batch]


class _Waiting:
    """A stage of an FFN rank on a GPU: a receive that may be under way, and what the host sees of it."""

    def __init__(self, plan: _core.Plan, peers: int) -> None:
        cuda: Any = torch.cuda  # which has no hints
        self.stream = cuda.Stream()
        self.event = cuda.Event()
        self.answered = cuda.Event()
        self.pending = False
        self.open: Deque[Arrival] = collections.deque()
        self.x = [from_tensor(plan.tensor(0, peer, 0)) for peer in range(peers)]
        self.side = [from_tensor(plan.tensor(0, peer, 1)) for peer in range(peers)]
        self._heads = [side[:_HEAD].view(torch.int64) for side in self.side]
        self._words = [torch.as_tensor(words, device="cuda") for words in
                       (plan.origin(), plan.arrived_bytes(0, 2 * peers)) if words is not None]
        self.heads = torch.zeros(peers, dtype=torch.int64, pin_memory=True)
        self.origin = torch.zeros(2, dtype=torch.int32, pin_memory=True)
        self.arrived = torch.zeros(2 * peers, dtype=torch.int32, pin_memory=True)
        self._plan = plan

    def post(self) -> None:
        """Enqueue the next receive, behind the last answer."""
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(self.answered)
            self._plan.recv_on_stream()
            self.heads.copy_(torch.cat(self._heads), non_blocking=True)
            self.origin.copy_(self._words[0], non_blocking=True)
            self.arrived.copy_(self._words[1], non_blocking=True)
            self.event.record(self.stream)
        self.pending = True


class WorkFfn(_WorkStages):
    """An FFN rank's."""

    def __init__(self, context: Context, topology: Topology, shape: Shape, inbox: Inbox) -> None:
        super().__init__(context, topology, shape)
        self._context = context
        self._inbox = inbox
        self._lock = threading.Lock()
        self._y = [[self._empty(context) for _ in self.peers] for _ in self.keys]
        self._sent: List[List[Optional[Request]]] = [[None] * len(self.peers) for _ in self.keys]
        self._waiting: List[_Waiting] = []
        self._first = 0
        if self.streams:
            self._plans = [context.plan_ffn(keys[:2], [(keys[2], each) for each in y], any=True)
                           for keys, y in zip(self.keys, self._y)]

    def ready(self) -> None:
        """After the commit: views of all buffers are made once."""
        self._waiting = [_Waiting(plan, len(self.peers)) for plan in self._plans]

    def recv(self, timeout: Optional[float]) -> Arrival:
        """The next batch of any peer and stage; None waits until close()."""
        if self.streams:
            with self._lock:
                try:
                    return self._recv_on_gpu(timeout)
                except HandleError:
                    if not self._inbox.closed:
                        raise
                    raise closed() from None
        places = [(keys[0], peer) for keys in self.keys for peer in range(len(self.peers))]
        batch = self._inbox.take(places, timeout)
        stage = [int(keys[0]) for keys in self.keys].index(batch[0].key)
        peer = self._inbox.peer_of(batch)
        x, side = rows_of(batch, 0), rows_of(batch, 1)
        head = int(side[:_HEAD].view(torch.int64)) if side.numel() >= _HEAD else 0
        return self._arrival(peer, stage, head, x, side, (batch[0].nbytes, batch[1].nbytes), batch)

    def _arrival(self, peer: int, stage: int, head: int, x: torch.Tensor, side: torch.Tensor,
                 arrived: Tuple[int, ...], batch: Optional[Batch]) -> Arrival:
        """Check what a peer says of its batch."""
        layer, rows = head & 0xffff, head >> 32
        size = self.shape.hidden * x.element_size()
        if (head >> 16 & 0xffff != (stage | _MARK << 8) or not 0 < rows <= self.shape.tokens or
                arrived != (rows * size, _HEAD + rows * self.shape.top_k * 8)):
            if batch is not None:
                batch.release()
            raise error(ProtocolError, "PROTOCOL", f"attention rank {self.peers[peer]} has sent {arrived} bytes "
                        f"in stage {stage} that say {head:#x}: not a batch of this connector")
        ids, weights = self.routing(side, rows)
        return Arrival(peer, stage, layer, x[:rows], ids, weights, batch)

    def _recv_on_gpu(self, timeout: Optional[float]) -> Arrival:
        began = time.monotonic()
        while True:
            for i in range(len(self._waiting)):
                stage = (self._first + i) % len(self._waiting)
                waiting = self._waiting[stage]
                if not waiting.pending:
                    if len(waiting.open) == len(self.peers):
                        continue  # all of them are to be answered first
                    waiting.post()
                if waiting.event.query():
                    self._plans[stage].status()  # a plan that has failed lets the stream pass
                    self._first = stage + 1
                    return self._take(stage, waiting)
            if self._inbox.closed:
                raise closed()
            spent = time.monotonic() - began
            if timeout is not None and spent >= timeout:
                raise error(TimeoutError, "TIMEOUT", f"no attention rank has sent anything in {timeout:g} s")
            if spent < 0.001:
                time.sleep(0)
            else:  # time to look whether peers are alive: a plan whose peer is lost lets the stream pass
                self._context.progress()
                time.sleep(20e-6)

    def _take(self, stage: int, waiting: _Waiting) -> Arrival:
        waiting.pending = False
        peer = int(waiting.origin[0])
        if not 0 <= peer < len(self.peers):
            raise error(ProtocolError, "PROTOCOL", f"a batch of peer {peer} of {len(self.peers)}")
        arrived = tuple(waiting.arrived[2 * peer:2 * peer + 2].tolist())
        made = self._arrival(peer, stage, int(waiting.heads[peer]), waiting.x[peer], waiting.side[peer],
                             arrived, None)
        waiting.open.append(made)
        return made

    def send(self, arrival: Arrival, out: torch.Tensor) -> None:
        """Answer with rows, which are copied."""
        stage, peer, rows = arrival.stage, arrival.peer, arrival.hidden.shape[0]
        if tuple(out.shape) != (rows, self.shape.hidden):
            raise error(InvalidError, "INVALID", f"an answer of {tuple(out.shape)} to {rows} rows")
        y = self._y[stage][peer][:rows]
        if self.streams:
            waiting = self._waiting[stage]
            if not waiting.open or waiting.open[0] is not arrival:
                raise error(StateError, "STATE", f"batches of stage {stage} are answered in the order in which "
                            "they came, each once")
            y.copy_(out)
            self._plans[stage].respond_on_stream(None, [rows * self.shape.hidden * y.element_size()])
            waiting.open.popleft()
            waiting.answered.record(torch.cuda.current_stream())
            return
        assert arrival.batch is not None
        before = self._sent[stage][peer]
        if before is not None:  # before its source is overwritten; its peer has sent again, so it is there
            try:
                before.wait(self.timeout)
            except TimeoutError:
                raise
            except StepafError:
                pass  # the peer is lost, which the answer tells
            self._sent[stage][peer] = None
        y.copy_(out)
        self._sent[stage][peer] = arrival.batch.respond([y])
