# SPDX-License-Identifier: Apache-2.0
"""A connector's membership in a job of the library: bring-up, batches by key, control messages."""

from __future__ import annotations

import collections
import json
import os
import threading
import time
from typing import Any, Deque, Dict, Iterable, List, Mapping, Optional, Tuple

import torch

from .. import _core
from .._context import Context
from .._core import Batch, Request
from .._errors import CanceledError, HandleError, ProtocolError, StepafError, TimeoutError
from ..torch import from_tensor
from ._topology import Topology

CONTROL = 1
SLICE_S = 0.05
_environment = threading.Lock()


def stage_key(stage: int, index: int) -> int:
    """The keys of a stage."""
    return 16 + 8 * stage + index


def join(topology: Topology, host: str, port: int, timeout_s: float,
         defaults: Optional[Mapping[str, str]] = None) -> Context:
    """Meet the other ranks at host:port. Collective; any rank may come first. defaults: settings of the
    library's, where the environment does not have them."""
    address = f"[{host}]" if ":" in host else host
    names = {
        "STEPAF_BOOT": "tcp", "STEPAF_MEET": f"{address}:{port}",
        "STEPAF_SIZE": str(topology.attention + topology.ffn),
        "STEPAF_RANK": str(topology.world_rank()),
        "STEPAF_MESH": "full" if topology.full else "lane",
        "STEPAF_INIT_TIMEOUT_US": str(int(timeout_s * 1e6)),
    }
    # The library reads its environment while the context is made. What torchrun or a launcher of
    # vLLM's workers says there is of other jobs.
    hidden = ("STEPAF_LANES", "STEPAF_LOCAL_SIZE", "STEPAF_LOCAL_RANK", "STEPAF_ROLE")
    if not topology.full:
        names["STEPAF_LANES"] = str(topology.lanes)
    for name, default in (defaults or {}).items():
        names.setdefault(name, os.environ.get(name) or default)
    with _environment:
        saved = {name: os.environ.get(name) for name in (*names, *hidden)}
        for name in hidden:
            os.environ.pop(name, None)
        os.environ.update(names)
        try:
            return Context("ffn" if topology.is_ffn else "attention",
                           split=f"attn={topology.attention},ffn={topology.ffn}")
        finally:
            for name, value in saved.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


class Inbox:
    """An FFN rank's batches, parted by key and peer. Any thread."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._waiting: Dict[Tuple[int, int], Deque[Batch]] = collections.defaultdict(collections.deque)
        self.closed = False

    def _receive(self) -> None:
        batch = self._context.recv(SLICE_S)
        self._waiting[batch[0].key, self.peer_of(batch)].append(batch)

    def take(self, wanted: Iterable[Tuple[int, int]], timeout: Optional[float]) -> Batch:
        """The oldest batch of one of these (key, peer index); None as timeout waits until close()."""
        wanted = list(wanted)
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:  # for a slice of time, so that two takers do not starve each other
                for place in wanted:
                    if self._waiting[place]:
                        return self._waiting[place].popleft()
                if self.closed:
                    raise CanceledError("the connector is closed", _core.STATUSES["STEPAF_ERR_CANCELED"])
                try:
                    self._receive()
                    continue
                except TimeoutError:
                    if until is not None and time.monotonic() >= until:
                        raise
                except HandleError:
                    if self.closed:
                        continue
                    raise

    def peer_of(self, batch: Batch) -> int:
        """The index of the peer that has sent a batch."""
        return self._context.peer_index(batch.attention_rank)

    def close(self) -> None:
        """Before the context is closed."""
        self.closed = True


class Control:
    """Messages of attention ranks to the FFN ranks of their group, by host memory."""

    def __init__(self, context: Context, topology: Topology, stages: int) -> None:
        self._bytes = 1024 + 16 * stages * topology.attention
        self._n = 0
        key = context.push_key(CONTROL, self._bytes)
        self._plan = None
        self._request: Optional[Request] = None
        self._sources: Any = None
        if not topology.is_ffn and topology.is_first:
            self._sources = context.alloc(self._bytes)
            self._plan = context.plan({key: self._sources})

    def send(self, said: Dict[str, Any]) -> None:
        """Send, if this rank speaks for its group. Waits for the message before to have been sent."""
        if self._plan is None:
            return
        text = json.dumps(said, separators=(",", ":")).encode()
        if len(text) > self._bytes:
            raise ValueError(f"a control message of {len(text)} bytes, more than {self._bytes}")
        if self._request is not None:
            try:
                self._request.wait()
            except TimeoutError:
                raise  # it is still under way
            except StepafError:
                self._request = None
                raise
        memoryview(self._sources)[:len(text)] = text
        self._request = self._plan.start([self._sources[:len(text)]], wait=True)

    @staticmethod
    def read(batch: Batch) -> Tuple[Dict[int, List[int]], bool, bool]:
        """Token counts by stage, whether graphs are captured, whether it is for warming up; gives the
        batch back. Nothing in a message is trusted."""
        with batch:
            tensor: Any = batch[0]  # has the buffer protocol, which not every mypy knows of
            text = bytes(memoryview(tensor))
        try:
            said = json.loads(text)
            stages = {int(stage): [int(each) for each in counts] for stage, counts in said["stages"].items()}
            if not all(0 <= each < 1 << 31 for counts in stages.values() for each in counts):
                raise ValueError("a count is out of range")
            return stages, bool(said["capturing"]), bool(said["warmup"])
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as why:
            raise ProtocolError(f"a malformed control message: {text[:80]!r} ({why})",
                                _core.STATUSES["STEPAF_ERR_PROTOCOL"]) from None


def rows_of(batch: Batch, index: int) -> torch.Tensor:
    """A received tensor, in place."""
    return from_tensor(batch[index])
