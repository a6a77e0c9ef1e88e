# SPDX-License-Identifier: Apache-2.0
"""The stages of the synchronous connector, on host memory and on a GPU."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import torch

from .._context import Context
from .._core import Batch, Request
from .._errors import ProtocolError, StateError, StepafError, TimeoutError
from ..torch import empty, from_tensor
from ._link import Inbox, rows_of, stage_key
from ._settings import Shape
from ._stages import Operations, Stages, error
from ._topology import Topology, parts


class _Stages(Stages):
    def __init__(self, context: Context, topology: Topology, shape: Shape) -> None:
        super().__init__(context, topology, shape)
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


class AttentionStages(_Stages):
    """Plans, sources and destinations of an attention rank, by stage."""

    def __init__(self, context: Context, topology: Topology, shape: Shape) -> None:
        super().__init__(context, topology, shape)
        self._x = [self._empty(context) for _ in range(shape.stages)]
        self._y = [[self._empty(context) for _ in self.peers] for _ in range(shape.stages)]
        self._logits = [empty(context, (self.logits_bytes,), torch.uint8, device=shape.device)
                        for _ in range(shape.stages if self.logits_bytes else 0)]
        self._operations = Operations(shape, self.peers, self._plans)
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
        self._operations.expect_none(stage)
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
        self._operations.start(stage, rows, sources)

    def recv(self, out: torch.Tensor, stage: int) -> None:
        """Write the answers to out: on the current stream, or after a wait for them."""
        rows, n = out.shape[0], 0
        request = self._operations.finish(stage, rows, self.timeout)
        for i, (y, (begin, end, own)) in enumerate(zip(self._y[stage], parts(rows, len(self.peers)))):
            self._operations.check_answer(request, stage, i, end - begin)
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
        self._taken: List[List[Batch]] = [[] for _ in range(shape.stages)]
        self._arrived: List[torch.Tensor] = []
        self._plans = [context.plan_ffn(keys[:-1], [(keys[-1], y) for y in self._y[stage]])
                       for stage, keys in enumerate(self.keys)] if self.streams else []

    def ready(self) -> None:
        """After the commit: views of all receive buffers are made once."""
        self._x = [[[from_tensor(plan.tensor(0, peer, i)) for i in range(len(self.keys[0]) - 1)]
                    for peer in range(len(self.peers))] for plan in self._plans]
        self._arrived = [torch.as_tensor(plan.arrived_bytes(0, len(self.peers) * (len(self.keys[0]) - 1)),
                                         device="cuda") for plan in self._plans]

    def _compare(self, stage: int, sent: Sequence[int], counts: Sequence[int]) -> None:
        for peer, (rows, told) in enumerate(zip(sent, counts)):
            if rows != told:
                raise error(ProtocolError, "PROTOCOL", f"stage {stage}: attention rank {self.peers[peer]} has "
                            f"sent {rows} rows, and the control plane told {told}")

    def recv(self, stage: int, counts: Optional[Sequence[int]],
             compare: bool = False) -> Tuple[List[List[torch.Tensor]], List[Batch]]:
        """What each peer has sent to a stage, in place: rows, and bytes of logits. counts: of rows, by
        peer, which streams have to be told. compare them with what has come also on a stream, which the
        host then waits for."""
        if not self.streams:
            taken = self._taken[self._known(stage)]  # of an attempt that has timed out, the first ones
            while len(taken) < len(self.peers):
                taken.append(self._inbox.take([(self.keys[stage][0], len(taken))], self.timeout or 60.0))
            self._taken[stage] = []
            got = [[rows_of(batch, i) for i in range(len(batch))] for batch in taken]
            if counts is not None:
                try:
                    self._compare(stage, [each[0].shape[0] for each in got], counts)
                except StepafError:
                    for batch in taken:
                        batch.release()  # which ends the operations at the attention ranks
                    raise
            return got, taken
        if counts is None:
            raise error(StateError, "STATE", "the control plane has sent no numbers of rows")
        self._known(stage)
        self._plans[stage].recv_on_stream()
        if compare:
            size = self.shape.hidden * self._y[stage][0].element_size()
            self._compare(stage, [n // size for n in self._arrived[stage].tolist()[::len(self.keys[0]) - 1]],
                          counts)
        return [[each[0][:rows], *each[1:]] for each, rows in zip(self._x[stage], counts)], []

    def send(self, stage: int, slices: Sequence[torch.Tensor], batches: List[Batch]) -> None:
        """Answer each peer, and give back what it has sent."""
        sent = self._sent[self._known(stage)]
        while sent:  # before their sources are overwritten
            try:
                sent[0].wait(self.timeout)
            except TimeoutError:
                raise
            except StepafError:
                pass  # that peer is lost, which the answer below tells
            sent.pop(0)
        answers = [y[:rows.shape[0]].copy_(rows) for y, rows in zip(self._y[stage], slices)]
        if self.streams:
            self._plans[stage].respond_on_stream(
                None, [answer.numel() * answer.element_size() for answer in answers])
            return
        failure: Optional[StepafError] = None
        for batch, answer in zip(batches, answers):
            try:
                sent.append(batch.respond([answer]))
            except StepafError as error:  # the other peers get theirs all the same
                failure = failure or error
        if failure is not None:
            raise failure
