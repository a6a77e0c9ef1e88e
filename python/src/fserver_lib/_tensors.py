# SPDX-License-Identifier: Apache-2.0
"""Tensors of the caller: what they are, copies out of them and into them, and views of what arrives.

Host memory is copied by memmove, without the interpreter lock. GPU memory is copied by torch, in the
order of its current stream, and the copy is complete when the call returns.
"""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any, NamedTuple, Optional, Tuple

import stepaf

from ._errors import error

# Their places are numbers on the wire: append only.
_SIZES = {"uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2,
          "float32": 4, "float64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1, "bool": 1,
          "complex64": 8, "complex128": 16}
DTYPES = tuple(_SIZES)
_SHORT = {"u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
          "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
          "fp8": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", None: "uint8"}
MAX_DIMS = 8


class Memory(NamedTuple):
    """A tensor of the caller's, read once."""

    tensor: Any
    address: int
    nbytes: int
    dtype: str
    shape: Tuple[int, ...]
    is_cuda: bool


def size_of(dtype: str, shape: Tuple[int, ...]) -> int:
    return math.prod(shape) * _SIZES[dtype]


def _torch() -> Any:
    """torch, if the program has it."""
    return sys.modules.get("torch")


def is_torch(tensor: Any) -> bool:
    torch = _torch()
    return torch is not None and isinstance(tensor, torch.Tensor)


def read(tensor: Any, source: bool) -> Memory:
    """What a tensor is. A source that is not in one piece is copied; a destination is refused."""
    if is_torch(tensor):
        if not tensor.is_contiguous():
            if not source:
                raise error(stepaf.InvalidError, "a tensor to pull into is not contiguous")
            tensor = tensor.contiguous()
        dtype = str(tensor.dtype).rsplit(".", 1)[-1]
        made = Memory(tensor, int(tensor.data_ptr()), int(tensor.numel() * tensor.element_size()),
                      dtype, tuple(tensor.shape), bool(tensor.is_cuda))
    else:
        view = stepaf.as_tensor(tensor)
        dtype = _SHORT.get(view.dtype, str(view.dtype))
        made = Memory(view, view.data_ptr() if view.nbytes else 0, view.nbytes, dtype, view.shape,
                      view.device != "cpu")
        if made.is_cuda and _torch() is not None:
            made = made._replace(tensor=_torch().as_tensor(tensor, device="cuda"))
    if made.dtype not in _SIZES:
        raise error(stepaf.UnsupportedError, f"no element type {made.dtype}")
    if len(made.shape) > MAX_DIMS:
        raise error(stepaf.LimitError, f"a tensor of {len(made.shape)} dimensions; {MAX_DIMS} can be sent")
    return made


def _flat(memory: Memory) -> Any:
    torch = _torch()
    if torch is None:
        raise error(stepaf.UnsupportedError, "tensors in GPU memory require torch")
    return memory.tensor.reshape(-1).view(torch.uint8)


def _host(address: int, nbytes: int) -> Any:
    raw = (ctypes.c_uint8 * nbytes).from_address(address)
    return _torch().frombuffer(raw, dtype=_torch().uint8)


def copy_out(memory: Memory, address: int) -> None:
    """Copy a tensor of the caller's into memory of the library's."""
    if not memory.nbytes:
        return
    if memory.is_cuda:
        flat = _flat(memory)
        _host(address, memory.nbytes).copy_(flat)
    else:
        ctypes.memmove(address, memory.address, memory.nbytes)


def copy_in(memory: Memory, address: int, nbytes: int) -> None:
    """Copy into the first bytes of a tensor of the caller's."""
    if not nbytes:
        return
    if memory.is_cuda:
        _flat(memory)[:nbytes].copy_(_host(address, nbytes))
    else:
        ctypes.memmove(memory.address, address, nbytes)


def arrived(data: stepaf.Tensor, dtype: str, shape: Tuple[int, ...], on_gpu: bool,
            gpu: Optional[int]) -> Any:
    """What a received tensor is to the caller: torch's if the program has torch, else a Tensor. On the
    GPU, by a copy, if it was there at its worker and is one here."""
    torch = _torch()
    if torch is None:
        short = next((name for name, long in _SHORT.items() if name and long == dtype), None)
        return stepaf.view(data, shape if short else (data.nbytes,), short or "u8")
    kind = getattr(torch, dtype, None)
    if kind is None:
        raise error(stepaf.UnsupportedError, f"this torch has no type {dtype}")
    if not data.nbytes:
        made = torch.empty(shape, dtype=kind)
    else:
        made = torch.from_dlpack(data).view(kind).reshape(shape)
    if on_gpu and torch.cuda.is_available():
        known = gpu is not None and gpu < torch.cuda.device_count()
        made = made.to(torch.device("cuda", gpu if known else torch.cuda.current_device()))
    return made


def into_slice(memory: Memory, offset: int, data: stepaf.Tensor, dtype: str,
               shape: Tuple[int, ...]) -> Any:
    """Copy what has arrived into a slice of a tensor of the caller's; returns a view of that."""
    if memory.is_cuda or is_torch(memory.tensor):
        torch = _torch()
        part = _flat(memory)[offset:offset + data.nbytes]
        if data.nbytes:
            part.copy_(torch.from_dlpack(data))
        return part.view(getattr(torch, dtype)).reshape(shape)
    if data.nbytes:
        ctypes.memmove(memory.address + offset, data.data_ptr(), data.nbytes)
    flat = stepaf.view(memory.tensor, (memory.nbytes,), "u8")
    short = next((name for name, long in _SHORT.items() if name and long == dtype), "u8")
    part = flat[offset:offset + data.nbytes]
    return stepaf.view(part, shape if _SHORT[short] == dtype else (data.nbytes,), short)
