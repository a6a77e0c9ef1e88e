# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each status of the library."""

from __future__ import annotations

import builtins
from typing import NamedTuple, Optional

from . import _core
from ._types import Role

__all__ = [
    "BootError", "CanceledError", "HandleError", "InvalidError", "KeyError", "LimitError",
    "MismatchError", "NoMemoryError", "NoTransportError", "PeerLostError", "ProtocolError",
    "PullsError", "RoleError", "SettingError", "SizeError", "SplitError", "StateError",
    "StepafError", "TimeoutError", "TransportError", "UnregisteredError", "UnsupportedError",
    "WouldBlockError", "Peer",
]


class Peer(NamedTuple):
    """The rank that a failure concerns."""

    role: Optional[Role]
    rank: int
    """Within its role's group; -1 if it is not known."""
    world_rank: int


class StepafError(Exception):
    """A failure reported by the library, or by this package in its place.

    ``status`` is the number, ``name`` its name in C, ``phase`` the phase in which it occurred,
    ``peer`` the rank that it concerns, or None, and ``text`` one sentence.
    """

    def __init__(self, text: str, status: int = 0, phase: str = "none", peer_role: int = -1,
                 peer_rank: int = -1, peer_world_rank: int = -1) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.phase = phase
        self.peer: Optional[Peer] = None
        if peer_rank >= 0 or peer_world_rank >= 0:
            role = Role(peer_role) if peer_role >= 0 else None
            self.peer = Peer(role, peer_rank, peer_world_rank)

    @property
    def name(self) -> str:
        """The name of the status in C."""
        return _core.status_text(self.status)[0]

    def __reduce__(self) -> tuple[object, ...]:
        peer = self.peer or Peer(None, -1, -1)
        role = -1 if peer.role is None else int(peer.role)
        return type(self), (self.text, self.status, self.phase, role, peer.rank, peer.world_rank)


class InvalidError(StepafError, ValueError):
    """An argument is not valid."""


class HandleError(StepafError):
    """The object has ended: a closed context, a released batch, an old request."""


class RoleError(StepafError):
    """The call is not for a rank of this role."""


class StateError(StepafError):
    """The call is not allowed in this state."""


class KeyError(StepafError, LookupError):  # noqa: A001
    """A key is not declared."""


class SizeError(StepafError, ValueError):
    """A tensor does not fit its buffer."""


class UnregisteredError(StepafError, ValueError):
    """A tensor is not in memory of the context: allocate it with Context.alloc, or register it."""


class PullsError(StepafError, ValueError):
    """The number of pulls is not a multiple of the number of FFN ranks. A mapping has one pull for
    each key; pairs have the pulls of each FFN rank, rank by rank."""


class MismatchError(StepafError):
    """Ranks disagree."""


class SplitError(StepafError):
    """The split does not describe this job."""


class SettingError(StepafError, ValueError):
    """A setting has a bad value."""


class WouldBlockError(StepafError, BlockingIOError):
    """No slot is free: the peer still holds the last batches."""


class TimeoutError(StepafError, builtins.TimeoutError):  # noqa: A001
    """A deadline has passed."""


class PeerLostError(StepafError, ConnectionError):
    """A peer is lost."""


class CanceledError(StepafError):
    """The operation was canceled, or the context was closed during the wait."""


class NoMemoryError(StepafError, MemoryError):
    """Out of memory."""


class LimitError(StepafError):
    """A fixed limit of the library is exceeded."""


class BootError(StepafError):
    """The ranks did not find each other."""


class TransportError(StepafError):
    """A transport has failed."""


class NoTransportError(StepafError):
    """No transport reaches a peer."""


class UnsupportedError(StepafError):
    """This build or machine does not support the call."""


class ProtocolError(StepafError):
    """A peer has sent malformed data."""


def class_name(status: str) -> str:
    """The name of the class for a status: STEPAF_ERR_PEER_LOST is PeerLostError."""
    words = status[len("STEPAF_ERR_"):].split("_")
    return "".join(word.capitalize() for word in words) + "Error"


CLASSES = {
    number: globals().get(class_name(name), StepafError)
    for name, number in _core.STATUSES.items() if number < 0
}
_core.set_errors(CLASSES, StepafError)
