# SPDX-License-Identifier: Apache-2.0
"""Finding the stream. Does not import torch or cupy: a program that has one has it loaded."""

from __future__ import annotations

import sys
from typing import Any

from . import _core
from ._errors import InvalidError


def _torch_current() -> "int | None":
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    if not torch.cuda.is_initialized():
        torch.cuda.init()
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return int(raw(torch.cuda.current_device()))
    return int(torch.cuda.current_stream().cuda_stream)


def handle(stream: Any) -> int:
    """The cudaStream_t of a stream of torch or cupy, or of an object with __cuda_stream__. None:
    the current stream of torch, or of cupy."""
    if stream is None:
        current = _torch_current()
        if current is not None:
            return current
        cupy: Any = sys.modules.get("cupy")
        if cupy is not None:
            return int(cupy.cuda.get_current_stream().ptr)
        raise InvalidError(
            "no stream is given, and neither torch nor cupy has a current one: pass a stream, or "
            "its cudaStream_t as an integer", _core.STATUSES["STEPAF_ERR_INVALID"])
    if hasattr(stream, "cuda_stream"):
        return int(stream.cuda_stream)
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    if hasattr(stream, "ptr"):
        return int(stream.ptr)
    raise TypeError(f"{stream!r} is not a stream")


_core.hooks["stream"] = handle
