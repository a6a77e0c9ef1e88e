# SPDX-License-Identifier: Apache-2.0
"""Attention-FFN exchange for LLM inference: libstepaf for Python.

    with stepaf.Context() as ctx:
        x_key, y_key = ctx.push_key(1, (128, 4096), "bf16"), ctx.pull_key(2, (128, 4096), "bf16")
        ...
        ctx.commit()

`python -m stepaf` reports which library is used, and which transports this machine has.
"""

from __future__ import annotations

from . import _library

library = _library.load()
"""The path of libstepaf."""

from . import _core  # noqa: E402
from . import _stream  # noqa: E402, F401
from ._aio import wait  # noqa: E402
from ._context import Context, as_tensor, respond_many, view, wait_any  # noqa: E402
from ._core import Batch, Plan, Request, Tensor  # noqa: E402
from ._errors import (BootError, CanceledError, HandleError, InvalidError,  # noqa: E402
                      LimitError, MismatchError, NoMemoryError, NoTransportError, Peer,
                      PeerLostError, ProtocolError, PullsError, RoleError, SettingError, SizeError,
                      SplitError, StateError, StepafError, TransportError, UnregisteredError,
                      UnsupportedError, WouldBlockError)
from ._errors import KeyError as KeyError  # noqa: A004, E402
from ._errors import TimeoutError as TimeoutError  # noqa: A004, E402
from ._library import LibraryNotFoundError  # noqa: E402
from ._types import (Answer, Direction, Group, Key, Link, MemberState, Role,  # noqa: E402
                     Timeline, TraceRecord)

__version__ = _core.built_version

# KeyError and TimeoutError are left out: they would hide Python's own.
__all__ = [
    "Answer", "Batch", "BootError", "CanceledError", "Context", "Direction", "Group", "HandleError",
    "InvalidError", "Key", "LibraryNotFoundError", "LimitError", "Link", "MemberState",
    "MismatchError", "NoMemoryError", "NoTransportError", "Peer", "PeerLostError", "Plan", "ProtocolError",
    "PullsError", "Request", "Role", "RoleError", "SettingError", "SizeError", "SplitError",
    "StateError", "StepafError", "Tensor", "Timeline", "TraceRecord", "TransportError",
    "UnregisteredError", "UnsupportedError", "WouldBlockError", "as_tensor", "respond_many", "view", "wait",
    "wait_any", "library", "version",
]


def version() -> str:
    """The loaded library's version."""
    return _core.version()
