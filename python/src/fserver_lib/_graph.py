# SPDX-License-Identifier: Apache-2.0
"""StepMesh's helpers for CUDA graphs: a flag and a number that a stream and the host share.

On tensors in host memory all four work on the host. On the GPU write_flag and seq_add_one are torch's
operations on the current stream, so they can be captured. The others need a kernel that this module does
not have: they raise NotImplementedError, which names what replaces them.
"""

from __future__ import annotations

import time
from typing import Any

import stepaf

from . import _tensors
from ._errors import error

_INSTEAD = ("has no kernel here: make a stream plan, stepaf.Context.plan(..., stream=True), whose "
            "start_on_stream and wait_on_stream can be captured into a graph (docs/python.md)")


def _number(tensor: Any) -> Any:
    """A memoryview of one int64."""
    view = stepaf.as_tensor(tensor)
    if view.nbytes != 8 or view.device != "cpu":
        raise error(stepaf.InvalidError, "a flag or number is one int64")
    memory: Any = stepaf.view(view, (8,), "u8")
    return memoryview(memory).cast("B").cast("q")


def _on_gpu(tensor: Any) -> bool:
    return bool(_tensors.is_torch(tensor) and tensor.is_cuda)


def map_pinned_tensor(tensor: Any, device_index: int) -> Any:
    """The same memory, for a device. Without a GPU that is the tensor itself."""
    if _tensors.is_torch(tensor) and tensor.is_pinned():
        raise NotImplementedError(f"map_pinned_tensor to GPU {device_index} {_INSTEAD}")
    return tensor


def write_flag(flag: Any, seq: Any) -> None:
    """flag = seq."""
    if _on_gpu(flag) or _on_gpu(seq):
        flag.copy_(seq, non_blocking=True)
        return
    _number(flag)[0] = _number(seq)[0]


def wait_flag(flag: Any, seq: Any) -> None:
    """Wait until flag is at least seq. On the host: at most the setting STEPAF_TIMEOUT_US, then
    TimeoutError."""
    if _on_gpu(flag) or _on_gpu(seq):
        raise NotImplementedError(f"wait_flag on a GPU {_INSTEAD}")
    from . import _state
    have, want = _number(flag), _number(seq)[0]
    limit = _state.timeout()
    deadline = time.monotonic() + limit
    while have[0] < want:
        if time.monotonic() > deadline:
            raise error(stepaf.TimeoutError, f"the flag is {have[0]}, not {want}, after {limit:g} s")
        time.sleep(0)


def seq_add_one(seq: Any) -> None:
    """seq = seq + 1."""
    if _on_gpu(seq):
        seq.add_(1)
        return
    _number(seq)[0] += 1


class SimpleNotify:
    """StepMesh's waits of a stream for a batch. Not here: a stream plan of an FFN rank does this."""

    def __init__(self, *unused: Any) -> None:
        raise NotImplementedError(
            "SimpleNotify is not provided: make a stream plan, stepaf.Context.plan_ffn, whose recv_on_stream "
            "and respond_on_stream block a stream, not the host (docs/python.md)")
