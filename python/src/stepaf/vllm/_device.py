# SPDX-License-Identifier: Apache-2.0
"""The stages of a connector on host memory and on a GPU: all that differs between the two is here."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import torch

from .. import _core
from .._context import Context
from .._core import Batch, Request
from .._errors import StateError
from ..torch import empty, from_tensor
from ._link import Inbox, rows_of, stage_key
from ._settings import Shape
from ._topology import Topology, parts


class _Stages:
    def __init__(self, context: Context, topology: Topology, shape: Shape) -> None:
        self.shape = shape
        self.peers = topology.peers()
        self.streams = shape.device == "cuda"
        self.timeout: Optional[float] = None
        self.keys: List[List[int]] = []
        self.logits_bytes = shape.tokens * shape.experts * 8 if shape.gate else 0
        rows = (shape.tokens, shape.hidden)
        for stage in range(shape.stages):
            keys: List[int] = [context.push_key(stage_key(stage, 0), rows, shape.dtype, depth=1,
                                                device=shape.device)]
            if self.logits_bytes:
                keys.append(context.push_key(stage_key(stage, 1), self.logits_bytes, depth=1,
                                             device=shape.device))
            keys.append(context.pull_key(stage_key(stage, 2), rows, shape.dtype, depth=1,
                                         device=shape.device))
            self.keys.append(keys)

    def _empty(self, context: Context) -> torch.Tensor:
        return empty(context, (self.shape.tokens, self.shape.hidden), self.shape.dtype,
                     device=self.shape.device)


class AttentionStages(_Stages):
    """Plans, sources and destinations of an attention rank, by stage."""

    def __init__(self, context: Context, topology: Topology, shape: Shape) -> None:
        super().__init__(context, topology, shape)
        self._x = [self._empty(context) for _ in range(shape.stages)]
        self._y = [[self._empty(context) for _ in self.peers] for _ in range(shape.stages)]
        self._logits = [empty(context, (self.logits_bytes,), torch.uint8, device=shape.device)
                        for _ in range(shape.stages if self.logits_bytes else 0)]
        self._started: List[Optional[Tuple[int, Optional[Request]]]] = [None] * shape.stages
        self._plans = []
        for stage, keys in enumerate(self.keys):
            push = {keys[0]: self._x[stage]}
            if self._logits:
                push[keys[1]] = self._logits[stage]
            self._plans.append(context.plan(push, [(keys[-1], y) for y in self._y[stage]],
                                            scatter=len(self.peers) > 1, stream=self.streams))

    def ready(self) -> None:
        """After the commit."""

    def send(self, hidden: torch.Tensor, logits: Optional[torch.Tensor], stage: int) -> None:
        """Copy the rows to their registered place, and start. Waits for nothing."""
        rows = hidden.shape[0]
        if self._started[stage] is not None:
            raise StateError(f"stage {stage} is sent twice without a receive",
                             _core.STATUSES["STEPAF_ERR_STATE"])
        self._x[stage][:rows].copy_(hidden)
        if logits is not None:
            flat = logits.contiguous().view(-1).view(torch.uint8)
            self._logits[stage][:flat.numel()].copy_(flat)
        sources: List[Any] = []
        for begin, end, _ in parts(rows, len(self.peers)):
            sources.append(self._x[stage][begin:end])
            if self.logits_bytes:
                each = 0 if logits is None else logits.shape[1] * logits.element_size()
                sources.append(self._logits[stage][begin * each:end * each] if each else None)
        plan = self._plans[stage]
        request = plan.start_on_stream(None, sources) if self.streams else plan.start(sources)
        self._started[stage] = rows, request

    def recv(self, out: torch.Tensor, stage: int) -> None:
        """Write the answers to out: on the current stream, or after a wait for them."""
        started = self._started[stage]
        if started is None or started[0] != out.shape[0]:
            raise StateError(f"stage {stage}: {out.shape[0]} rows are to be received, "
                             f"{started[0] if started else 'none'} were sent",
                             _core.STATUSES["STEPAF_ERR_STATE"])
        rows, request = started
        if request is None:
            self._plans[stage].wait_on_stream()
        else:
            request.wait(self.timeout)
        self._started[stage] = None
        n = 0
        for y, (_, _, own) in zip(self._y[stage], parts(rows, len(self.peers))):
            out[n:n + own].copy_(y[:own])
            n += own


class FfnStages(_Stages):
    """Receive buffers and answers of an FFN rank, by stage."""

    def __init__(self, context: Context, topology: Topology, shape: Shape, inbox: Inbox) -> None:
        super().__init__(context, topology, shape)
        self._inbox = inbox
        self._y = [[self._empty(context) for _ in self.peers] for _ in range(shape.stages)]
        self._sent: List[List[Request]] = [[] for _ in range(shape.stages)]
        self._x: List[List[List[torch.Tensor]]] = []
        self._plans = [context.plan_ffn(keys[:-1], [(keys[-1], y) for y in self._y[stage]])
                       for stage, keys in enumerate(self.keys)] if self.streams else []

    def ready(self) -> None:
        """After the commit: views of all receive buffers are made once."""
        self._x = [[[from_tensor(plan.tensor(0, peer, i)) for i in range(len(self.keys[0]) - 1)]
                    for peer in range(len(self.peers))] for plan in self._plans]

    def recv(self, stage: int, counts: Optional[Sequence[int]]) -> Tuple[List[List[torch.Tensor]], List[Batch]]:
        """What each peer has sent to a stage, in place: rows, and bytes of logits. counts: of rows, by
        peer, which streams have to be told."""
        if not self.streams:
            batches = [self._inbox.take([(self.keys[stage][0], peer)], self.timeout or 60.0)
                       for peer in range(len(self.peers))]
            return [[rows_of(batch, i) for i in range(len(batch))] for batch in batches], batches
        if counts is None:
            raise StateError("the control plane has told no numbers of rows",
                             _core.STATUSES["STEPAF_ERR_STATE"])
        self._plans[stage].recv_on_stream()
        return [[each[0][:rows], *each[1:]] for each, rows in zip(self._x[stage], counts)], []

    def send(self, stage: int, slices: Sequence[torch.Tensor], batches: List[Batch]) -> None:
        """Answer each peer, and give back what it has sent."""
        for request in self._sent[stage]:
            request.wait(self.timeout)
        answers = [y[:rows.shape[0]].copy_(rows) for y, rows in zip(self._y[stage], slices)]
        if self.streams:
            self._plans[stage].respond_on_stream(
                None, [answer.numel() * answer.element_size() for answer in answers])
        else:
            self._sent[stage] = [batch.respond([answer]) for batch, answer in zip(batches, answers)]
