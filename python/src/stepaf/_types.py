# SPDX-License-Identifier: Apache-2.0
"""Enumerations and records."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, Optional, Union

from . import _core


class Role(enum.IntEnum):
    """Role of a rank in the job."""

    ATTENTION = _core.ATTENTION
    FFN = _core.FFN


class Group(enum.IntEnum):
    """A set of ranks."""

    WORLD = _core.WORLD_GROUP
    ATTENTION = _core.ATTENTION_GROUP
    FFN = _core.FFN_GROUP


class Direction(enum.IntEnum):
    """The direction in which a key's tensors are sent."""

    PUSH = _core.PUSH
    PULL = _core.PULL


class MemberState(enum.IntEnum):
    """State of a rank, as known to another rank."""

    IN = _core.MEMBER_IN
    SLOW = _core.MEMBER_SLOW
    """A member that has owed this rank an answer for a long time (STEPAF_SLOW_US)."""
    LOST = _core.MEMBER_LOST
    """A member that has ended or cannot be reached."""
    OUT = _core.MEMBER_OUT
    """Excluded by a commit after it was lost."""
    ASKS = _core.MEMBER_ASKS
    """Lost or out; a process asks to replace it."""
    LEAVES = _core.MEMBER_LEAVES
    """A member that waits in the commit with which it leaves."""
    LEFT = _core.MEMBER_LEFT
    """Has left with a commit."""


class Key(int):
    """A declared key: its number, with its declaration."""

    direction: Direction
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    device: str

    def __repr__(self) -> str:
        return f"Key({int(self)}, {self.direction.name}, {self.shape}, {self.dtype})"


class Answer(NamedTuple):
    """An answer that a batch expects."""

    key: int
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    """The largest size."""


class Timeline(NamedTuple):
    """The times of an operation at an FFN rank, in ns since its start; -1: has not occurred."""

    start_ns: int
    """On the clock of Context.clock_ns."""
    notified_ns: int
    answered_ns: int
    ffn_queue_ns: int
    ffn_work_ns: int


class Link(NamedTuple):
    """The link to a peer."""

    world_rank: int
    lost: bool
    transport: str
    address: str
    refused: str
    """Better transports, with the reasons why they are not used."""
    bytes_sent: int
    messages_sent: int
    bytes_received: int


class TraceRecord(NamedTuple):
    """A step of an operation."""

    time_ns: int
    sequence: int
    plan: int
    event: str
    peer: int
    tensor: int
    nbytes: int


_ALIASES = {
    "uint8": "u8", "bool": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32", "float": "f32",
    "float64": "f64", "double": "f64", "float8_e4m3fn": "fp8", "fp8_e4m3": "fp8",
    "float8_e5m2": "fp8_e5m2",
}

DType = Union[str, object]


def dtype_name(dtype: DType) -> str:
    """The library's name of an element type: its own, torch's or numpy's (also as an object)."""
    if dtype is float or dtype is int:  # torch and numpy give them different sizes
        raise _no_dtype(f"{dtype} is a Python type without a fixed size")
    text = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    text = text.rsplit(".", 1)[-1]
    name = _ALIASES.get(text, text)
    if name not in _core.DTYPES:
        raise _no_dtype(f"no element type {text!r}")
    return name


def _no_dtype(text: str) -> Exception:
    from ._errors import InvalidError
    return InvalidError(f"{text}; element types are {', '.join(_core.DTYPES)}",
                        _core.STATUSES["STEPAF_ERR_INVALID"])


def torch_dtypes(torch: Any) -> "dict[Any, int]":
    """The numbers of torch's element types."""
    found = ((getattr(torch, alias, None), name) for alias, name in _ALIASES.items())
    return {dtype: _core.DTYPES[name] for dtype, name in found if isinstance(dtype, torch.dtype)}


def to_numpy(tensor: _core.Tensor, dtype: Any = None, copy: Optional[bool] = None) -> Any:
    """What numpy calls where there is no buffer: raises the reason, instead of returning an array
    of one object."""
    buffer: Any = tensor
    memory = memoryview(buffer)
    import numpy
    return (numpy.asarray(memory, dtype) if copy is None
            else numpy.array(memory, dtype=dtype, copy=copy))


_core.hooks.update(array=to_numpy, torch_dtypes=torch_dtypes)


def dtype_number(dtype: DType) -> int:
    return _core.DTYPES[dtype_name(dtype)]


def mem_kind(device: Optional[object]) -> int:
    """The memory kind of "cpu", "cuda", "cuda:0", or torch's device."""
    text = "cpu" if device is None else str(device)
    if text == "cpu":
        return _core.HOST
    if text.split(":")[0] == "cuda":
        return _core.CUDA
    from ._errors import InvalidError
    raise InvalidError(f"no memory of device {text!r}; there are 'cpu' and 'cuda'",
                       _core.STATUSES["STEPAF_ERR_INVALID"])
