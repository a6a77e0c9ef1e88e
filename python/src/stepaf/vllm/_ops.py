# SPDX-License-Identifier: Apache-2.0
"""Custom operators of attention ranks, with fakes and integer handles, so that graphs trace them.

Both say that they write their tensor: that keeps send, yield and receive of a microbatch in order.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Callable, Optional

import torch

from .. import _core
from .._errors import HandleError

_handles = itertools.count(1)
_by_handle: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()


def number(stages: Any) -> int:
    """A handle of something with send and recv, which is the caller's to keep."""
    handle = next(_handles)
    _by_handle[handle] = stages
    return handle


def _find(handle: int) -> Any:
    found = _by_handle.get(handle)
    if found is None:
        raise HandleError(f"no open connector has the handle {handle}",
                          _core.STATUSES["STEPAF_ERR_HANDLE"])
    return found


def _send(hidden: torch.Tensor, logits: Optional[torch.Tensor], stage: int, handle: int) -> None:
    _find(handle).send(hidden, logits, stage)


def _send_routed(hidden: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, layer: int, stage: int,
                 handle: int) -> None:
    _find(handle).send(hidden, ids, weights, layer, stage)


def _recv(out: torch.Tensor, stage: int, handle: int) -> None:
    _find(handle).recv(out, stage)


_library: Any = getattr(torch.library, "Library")("stepaf_afd", "DEF")  # which has no hints


def _define(schema: str, function: Callable[..., None]) -> None:
    name = schema.split("(")[0]
    _library.define(schema)
    _library.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake("stepaf_afd::" + name, lambda *unused: None, lib=_library)


_define("send(Tensor(a!) hidden, Tensor? logits, int stage, int handle) -> ()", _send)
_define("send_routed(Tensor(a!) hidden, Tensor ids, Tensor weights, int layer, int stage, int handle) -> ()",
        _send_routed)
_define("recv(Tensor(a!) out, int stage, int handle) -> ()", _recv)
