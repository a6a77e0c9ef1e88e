# SPDX-License-Identifier: Apache-2.0
"""What the stages of both connectors, and of both roles, have in common."""

from __future__ import annotations

from typing import Any, List, Optional

import torch

from .. import _core
from .._context import Context
from .._core import Plan
from .._errors import CanceledError, InvalidError, ProtocolError, StepafError
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
        if not 0 <= stage < self.shape.stages:
            raise error(InvalidError, "INVALID", f"stage {stage}: there are {self.shape.stages} (num_stages)")
        return stage

    def check(self) -> None:
        """Raise what has failed on a stream."""
        for plan in self._plans:
            if plan.is_stream:
                plan.status()
