# SPDX-License-Identifier: Apache-2.0
"""What the stages of both connectors, and of both roles, have in common."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import torch

from .. import _core
from .._context import Context
from .._core import Plan, Request
from .._errors import CanceledError, InvalidError, ProtocolError, StateError, StepafError, TimeoutError
from ..torch import empty
from ._settings import Shape
from ._topology import Topology


def error(kind: Any, status: str, text: str) -> StepafError:
    """An exception of this kind with its status, such as STATE."""
    made: StepafError = kind(text, _core.STATUSES["STEPAF_ERR_" + status])
    return made


def closed() -> StepafError:
    """What ends a wait of a connector that is closed."""
    return error(CanceledError, "CANCELED", "the connector is closed")


def logits_of(raw: torch.Tensor, rows: int, width: int, kind: torch.dtype) -> torch.Tensor:
    """Router logits of rows, of what has arrived."""
    wanted = rows * width * torch.empty((), dtype=kind).element_size()
    if raw.numel() < wanted:
        raise error(ProtocolError, "PROTOCOL", f"router logits of {raw.numel()} bytes, where {rows} rows of "
                     f"{width} {kind} are expected")
    return raw[:wanted].view(kind).view(-1, width)


def known(shape: Shape, stage: int) -> int:
    """The stage, if there is one of this number."""
    if not 0 <= stage < shape.stages:
        raise error(InvalidError, "INVALID", f"stage {stage}: there are {shape.stages} (num_stages)")
    return stage


class Stages:
    """What both roles have of both connectors."""

    def __init__(self, context: Context, topology: Topology, shape: Shape) -> None:
        self.shape = shape
        self.peers = topology.peers()
        self.streams = shape.device == "cuda"
        self.timeout: Optional[float] = None
        self._plans: List[Plan] = []

    def _empty(self, context: Context) -> torch.Tensor:
        return empty(context, (self.shape.tokens, self.shape.hidden), self.shape.dtype,
                     device=self.shape.device)

    def _known(self, stage: int) -> int:
        return known(self.shape, stage)

    def check(self) -> None:
        """Raise what has failed on a stream."""
        for plan in self._plans:
            if plan.is_stream:
                plan.status()


class Operations:
    """What an attention rank has sent and not yet received: at most one operation of each stage. Does not
    refer to the stages: their tensors end with the last reference to them, and then the rank can leave."""

    def __init__(self, shape: Shape, peers: List[int], plans: List[Plan]) -> None:
        self._shape = shape
        self._peers = peers
        self._plans = plans
        self._row_bytes = shape.hidden * torch.empty((), dtype=shape.dtype).element_size()
        self._started: Dict[int, Tuple[int, Optional[Request]]] = {}

    def expect_none(self, stage: int) -> None:
        """Refuse a stage that is sent already, before anything of it is overwritten."""
        if known(self._shape, stage) in self._started:
            raise error(StateError, "STATE", f"stage {stage} is sent twice without a receive")

    def start(self, stage: int, rows: int, sources: List[Any]) -> None:
        """Start it, on the current stream if the plan is on streams. Waits for nothing."""
        plan = self._plans[stage]
        request = plan.start_on_stream(None, sources) if plan.is_stream else plan.start(sources)
        self._started[stage] = rows, request

    def finish(self, stage: int, rows: int, timeout: Optional[float]) -> Optional[Request]:
        """Wait for the answers, on the current stream or here; in the latter case what describes them."""
        started = self._started.get(known(self._shape, stage))
        if started is None or started[0] != rows:
            raise error(StateError, "STATE", f"stage {stage}: {rows} rows are to be received, "
                        f"{started[0] if started else 'none'} were sent")
        request = started[1]
        try:
            if request is None:
                self._plans[stage].wait_on_stream()
            else:
                request.wait(timeout)
        except StepafError as failure:
            if request is None or not isinstance(failure, TimeoutError):
                del self._started[stage]  # it has ended; after a timeout it can be received again
            raise
        del self._started[stage]
        return request

    def check_answer(self, request: Optional[Request], stage: int, i: int, rows: int) -> None:
        """That peer i has answered so many rows; on streams only the GPU knows."""
        if request is None:
            return
        answer = request.tensor(i)
        if answer is None or answer.nbytes != rows * self._row_bytes:
            raise error(ProtocolError, "PROTOCOL", f"stage {stage}: FFN rank {self._peers[i]} has "
                        f"answered {answer.nbytes if answer else 0} bytes to {rows} rows")
