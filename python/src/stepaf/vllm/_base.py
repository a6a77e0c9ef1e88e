# SPDX-License-Identifier: Apache-2.0
"""What both connectors have in common: their place in the job, and their life."""
# mypy: disallow-subclassing-any=False

from __future__ import annotations

import threading
import traceback
from typing import Any, Mapping, Optional

import torch
from afd_plugin.connectors import AFDConnectorBase

from .._context import Context
from .._errors import StepafError
from . import _ops
from ._link import Inbox, join
from ._settings import Shape, StepafExtraInfo, shape_of
from ._stages import closed
from ._topology import Topology


class Connector(AFDConnectorBase):
    """A connector, closed at first. A subclass has _make_stages."""

    full = False
    """Whether every attention rank has every FFN rank as its peer."""
    defaults: Mapping[str, str] = {}
    """Settings of the library's at FFN ranks, where the environment does not have them."""

    def __init__(self, rank: int, local_rank: int, vllm_config: Any, afd_config: Any,
                 role_rank: int) -> None:
        super().__init__(rank, local_rank, vllm_config, afd_config, role_rank)
        self.attn_size = int(afd_config.num_attention_ranks)
        self.ffn_size = int(afd_config.num_ffn_ranks)
        self.topology = Topology(afd_config.role == "ffn", role_rank, self.attn_size, self.ffn_size,
                                 self.full)
        if not 0 <= role_rank < self.topology.size:
            raise ValueError(f"role_rank is {role_rank}, and the role has {self.topology.size} ranks")
        self.handle = 0
        self._starting = threading.Lock()
        self._lock = threading.Lock()  # of what follows
        self._n_closed = 0
        self._joined: Optional[Context] = None
        self._context: Optional[Context] = None
        self._stages: Any = None
        self._inbox: Optional[Inbox] = None

    @classmethod
    def parse_extra_config(cls, raw: Optional[Mapping[str, Any]]) -> StepafExtraInfo:
        """Raises TypeError or ValueError, which name the setting."""
        return StepafExtraInfo.from_mapping(raw)

    def _make_stages(self, context: Context, shape: Shape, inbox: Inbox) -> Any:
        raise NotImplementedError

    def _shape(self) -> Shape:
        return shape_of(self.vllm_config, self.afd_config, self.extra_info)

    def init_afd_connector(self) -> None:
        """Join the job and make all plans and buffers. Collective, either role first; idempotent.
        A close in the meantime ends it with CanceledError, as soon as the ranks have met."""
        with self._starting:
            if self._context is not None:
                return
            n_closed = self._n_closed
            shape = self._shape()
            if shape.device == "cuda":
                torch.cuda.set_device(self.local_rank)
            context = join(self.topology, self.afd_config.host, int(self.afd_config.port),
                           self.extra_info.init_timeout_s,
                           self.defaults if self.topology.is_ffn else None)
            try:
                with self._lock:
                    self._joined = context
                    self._unless_closed(n_closed)
                inbox = Inbox(context)
                stages = self._make_stages(context, shape, inbox)
                context.commit()
                stages.ready()
                handle = _ops.number(stages)
                with self._lock:
                    self._unless_closed(n_closed)
                    self._stages, self._inbox, self.handle = stages, inbox, handle
                    self._context = context
            except BaseException as failure:
                stages = inbox = None  # whose tensors would keep the rank in the job
                traceback.clear_frames(failure.__traceback__)
                with self._lock:
                    self._joined = None
                    left = n_closed != self._n_closed
                context.close()
                if left and isinstance(failure, StepafError):
                    raise closed() from None
                raise

    def _unless_closed(self, n_closed: int) -> None:
        if n_closed != self._n_closed:
            raise closed()

    @property
    def is_initialized(self) -> bool:
        return self._context is not None

    def close(self) -> None:
        """Leave the job. What is pending in other threads ends with CanceledError: receives, and an
        init_afd_connector whose ranks have met."""
        with self._lock:
            self._n_closed += 1
            context, self._joined = self._joined, None
            inbox = self._inbox
            self._context = self._stages = self._inbox = None
        if inbox is not None:
            inbox.close()
        if context is not None:
            context.close()

    def _need(self, part: Any) -> Any:
        if part is None:
            raise RuntimeError("the connector is not initialized")
        return part

    def check(self) -> None:
        """Raise what has failed on a stream: a replayed graph does not. Synchronize before this."""
        self._need(self._stages).check()

