# SPDX-License-Identifier: Apache-2.0
"""torch: the library's tensors as torch tensors, and operators that torch.compile can trace.

The operators identify an Exchange or a Server by a number, its handle, so that a graph contains no
Python object::

    exchange = stepaf.torch.Exchange(plan, push=[x], pull=[y])
    torch.ops.stepaf.start([x], [y], exchange.handle)
    ... work that does not need y ...
    torch.ops.stepaf.wait([y], exchange.handle)

``start`` and ``wait`` both declare that they write the pull tensors: this keeps them in order in a
compiled graph. Tensors that the compiler has put elsewhere are copied; those in their places are not.
"""

from __future__ import annotations

import collections
import itertools
import time
import weakref
from typing import Any, Callable, Deque, Iterable, List, Optional, Sequence, Tuple

import torch

from . import _core
from ._context import Context, view
from ._core import Batch, Plan, Request, Tensor
from ._errors import InvalidError, StepafError, TimeoutError

_DTYPES = {
    "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
    "f64": torch.float64, "fp8": getattr(torch, "float8_e4m3fn", None),
    "fp8_e5m2": getattr(torch, "float8_e5m2", None),
}

_handles = itertools.count(1)
_by_handle: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()


def dtype(name: str) -> torch.dtype:
    """torch's element type for one of the library's."""
    found = _DTYPES[name]
    if found is None:
        raise InvalidError(f"this torch has no type for {name}",
                           _core.STATUSES["STEPAF_ERR_INVALID"])
    return found


def from_tensor(tensor: Tensor) -> torch.Tensor:
    """A torch tensor of the same memory. A tensor of a batch counts as a view of the batch: do not
    read it once the batch is released."""
    name = tensor.dtype
    if name is not None and name.startswith("fp8"):  # DLPack has these types only since 1.1
        flat = view(tensor, tensor.shape, "u8")
        made: torch.Tensor = torch.from_dlpack(flat)  # type: ignore[attr-defined]
        return made.view(dtype(name))
    made = torch.from_dlpack(tensor)  # type: ignore[attr-defined]
    return made


def empty(context: Context, shape: "Sequence[int]", kind: torch.dtype = torch.float32, *,
          device: Optional[object] = None) -> torch.Tensor:
    """Context.alloc as a torch tensor."""
    return from_tensor(context.alloc(shape, kind, device=device))


def _is_at(tensor: torch.Tensor, address: int) -> bool:
    """Whether the tensor is the memory from the address on, and not a view of it in another order."""
    return bool(tensor.data_ptr() == address and tensor.is_contiguous())


def _end(tensor: torch.Tensor) -> int:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return int(tensor.data_ptr() + (last + 1) * tensor.element_size())


def _copy(place: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Copy the value to the first rows of a place, which may overlap it; returns these rows."""
    if (place.dim() != value.dim() or place.shape[1:] != value.shape[1:] or
            (value.dim() and value.shape[0] > place.shape[0])):
        raise InvalidError(f"a tensor of {tuple(value.shape)} has no place in one of {tuple(place.shape)}",
                           _core.STATUSES["STEPAF_ERR_INVALID"])
    rows = place[:value.shape[0]] if place.dim() else place
    if value.numel() and value.data_ptr() < _end(rows) and rows.data_ptr() < _end(value):
        value = value.clone()
    return rows.copy_(value)


def _put(place: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The value in its place: copied there, unless it is already there."""
    return value if _is_at(value, place.data_ptr()) else _copy(place, value)


def _get(out: torch.Tensor, arrived: Tensor) -> List[torch.Tensor]:
    """Copy what has arrived to out, unless it is already there; returns what the copy reads."""
    if _is_at(out, arrived.data_ptr()):
        return []
    source = from_tensor(arrived)
    _copy(out, source)
    return [source]


def _finish(tensors: Iterable[torch.Tensor]) -> None:
    """Wait for what current streams do with tensors in GPU memory: operations of the host are not ordered
    with streams."""
    cuda: Any = torch.cuda  # which has no hints
    for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
        cuda.current_stream(device).synchronize()


class _Numbered:
    def __init__(self) -> None:
        self.handle = next(_handles)
        _by_handle[self.handle] = self


class Exchange(_Numbered):
    """An attention rank's plan, with its planned tensors as torch tensors.

    After a wait of a host plan, ``answered`` has a bool for each peer: whether its tensors are valid.
    After a wait of a stream plan it is None, and ``plan.answers(exchange.slot)`` has the GPU's words.
    """

    def __init__(self, plan: Plan, push: Sequence[torch.Tensor], pull: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.plan = plan
        self.push = list(push)
        self.pull = list(pull)
        self.answered: Optional[Tuple[bool, ...]] = None
        self.slot = -1
        self._started: Deque[Optional[Request]] = collections.deque()
        self._last: Optional[Request] = None
        self._n = 0

    def start(self, push: Optional[Sequence[torch.Tensor]] = None) -> None:
        """Start an operation with these pushes: for a stream plan on the current stream, otherwise after
        what that stream does with tensors in GPU memory."""
        values = self.push if push is None else push
        if len(values) != len(self.push):
            raise InvalidError(f"{len(values)} tensors, where the plan pushes {len(self.push)}",
                               _core.STATUSES["STEPAF_ERR_INVALID"])
        self._await_sources(values)
        placed = [_put(place, value) for place, value in zip(self.push, values)]
        sizes = [value.numel() * value.element_size() for value in placed]
        whole = all(value.shape == place.shape for value, place in zip(placed, self.push))
        if self.plan.is_stream:
            self.plan.start_on_stream(None, None if whole else sizes)
            self._started.append(None)
        else:
            _finish([*placed, *values])
            self._last = self.plan.start() if whole else self.plan.start(placed)
            self._started.append(self._last)

    def _await_sources(self, values: Sequence[torch.Tensor]) -> None:
        """Wait before data that is still being sent from the planned places is overwritten: also after a
        wait for some answers it may not have gone to a late rank."""
        last = self._last
        if last is None or all(_is_at(value, place.data_ptr()) for place, value in zip(self.push, values)):
            return
        deadline = time.monotonic() + self.plan.context.default_timeout
        while not last.sent:
            if time.monotonic() > deadline:
                raise TimeoutError("the sources of the last operation are still being sent",
                                   _core.STATUSES["STEPAF_ERR_TIMEOUT"])
            self.plan.context.progress()

    def wait(self, out: Optional[Sequence[torch.Tensor]] = None) -> None:
        """Make the stream, or the caller, wait for the oldest operation; its answers are in out, or in
        the planned tensors. After TimeoutError it is still the oldest: wait again. Where some answers
        are enough (Plan.set_answers), tensors of a rank that has not answered stay as they are; on a
        stream all are copied, also those that are not valid."""
        if not self._started:
            raise InvalidError("no operation is started", _core.STATUSES["STEPAF_ERR_STATE"])
        outs = self.pull if out is None else out
        if len(outs) != len(self.pull):
            raise InvalidError(f"{len(outs)} tensors, where the plan pulls {len(self.pull)}",
                               _core.STATUSES["STEPAF_ERR_INVALID"])
        request = self._started[0]
        slot = self._n % max(self.plan.depth, 1)
        try:
            if request is None:
                self.plan.wait_on_stream()
            else:
                request.wait()
        except TimeoutError:
            raise
        except StepafError:
            self._end_oldest()
            raise
        self._end_oldest()
        self.slot = slot
        self.answered = None if request is None else request.answers()
        peers = max(self.plan.context.n_peers, 1) if self.answered is None else len(self.answered)
        each = max(len(outs) // peers, 1)
        copied: List[torch.Tensor] = []
        for i, place in enumerate(outs):
            if request is None:
                tensor: Optional[Tensor] = self.plan.tensor(slot, i // each, i % each)
            elif self.answered and self.answered[i // each]:
                tensor = request.tensor(i)
            else:
                continue
            if tensor is not None:
                copied += _get(place, tensor)
        if request is not None:
            _finish(copied)  # before the slot is started again

    def _end_oldest(self) -> None:
        self._started.popleft()
        self._n += 1


class Server(_Numbered):
    """An FFN rank's side, for graphs: received tensors are copied into the caller's, answers are sent
    from registered memory. With a stream plan all calls use the current stream; without one, they wait
    for it where tensors are in GPU memory."""

    def __init__(self, context: Context, answers: Sequence[torch.Tensor],
                 plan: Optional[Plan] = None) -> None:
        super().__init__()
        self.context = context
        self.answers = list(answers)
        self.plan = plan
        self._received: Deque[Optional[Batch]] = collections.deque()
        self._last: Optional[Request] = None
        self._n = 0

    def recv(self, out: Sequence[torch.Tensor]) -> None:
        """Receive the next batch (with a stream plan: of each peer, peer by peer)."""
        if self.plan is None:
            batch = self.context.recv()
            copied: List[torch.Tensor] = []
            for place, tensor in zip(out, batch):
                copied += _get(place, tensor)
            _finish(copied)  # before the batch is given back
            self._received.append(batch)
            return
        self.plan.recv_on_stream()
        self._received.append(None)
        each = len(out) // max(self.context.n_peers, 1)
        slot = self._n % max(self.plan.depth, 1)
        self._n += 1
        for i, place in enumerate(out):
            _get(place, self.plan.tensor(slot, i // each, i % each))

    def respond(self, answers: Sequence[torch.Tensor]) -> None:
        """Answer the oldest batch, and release it. After TimeoutError the batch is still the oldest: an
        earlier answer is being sent from the same places."""
        if not self._received:
            raise InvalidError("no batch is received", _core.STATUSES["STEPAF_ERR_STATE"])
        batch = self._received[0]
        if self._last is not None and batch is not None:
            try:
                self._last.wait()  # before its sources are overwritten
            except TimeoutError:
                raise
            except StepafError:
                pass  # the receiver of that answer is lost: this one is for another rank
            self._last = None
        self._received.popleft()
        placed = [_put(place, value) for place, value in zip(self.answers, answers)]
        if batch is not None:
            _finish([*placed, *answers])
            self._last = batch.respond(placed)
        elif self.plan is not None:
            whole = all(value.shape == place.shape for value, place in zip(placed, self.answers))
            sizes = [value.numel() * value.element_size() for value in placed]
            self.plan.respond_on_stream(None, None if whole else sizes)


def _find(handle: int) -> Any:
    found = _by_handle.get(handle)
    if found is None:
        raise InvalidError(f"no Exchange or Server has the handle {handle}",
                           _core.STATUSES["STEPAF_ERR_HANDLE"])
    return found


def _start(push: List[torch.Tensor], pull: List[torch.Tensor], exchange: int) -> None:
    _find(exchange).start(push)


def _wait(pull: List[torch.Tensor], exchange: int) -> None:
    _find(exchange).wait(pull)


def _recv(out: List[torch.Tensor], server: int) -> None:
    _find(server).recv(out)


def _respond(answers: List[torch.Tensor], received: List[torch.Tensor], server: int) -> None:
    _find(server).respond(answers)


_library: Any = getattr(torch.library, "Library")("stepaf", "DEF")  # which has no hints


def _define(schema: str, function: Callable[..., None]) -> None:
    name = schema.split("(")[0]
    _library.define(schema)
    _library.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake("stepaf::" + name, lambda *unused: None, lib=_library)


_define("start(Tensor[] push, Tensor(a!)[] pull, int exchange) -> ()", _start)
_define("wait(Tensor(a!)[] pull, int exchange) -> ()", _wait)
_define("recv(Tensor(a!)[] out, int server) -> ()", _recv)
_define("respond(Tensor[] answers, Tensor(a!)[] received, int server) -> ()", _respond)
