# SPDX-License-Identifier: Apache-2.0
"""Contexts."""

from __future__ import annotations

import atexit
import math
import operator
import weakref
from typing import Any, Iterable, Mapping, Optional, Sequence, Tuple, Union

from . import _aio, _boot, _core
from ._core import Batch, Plan, Request, Tensor
from ._errors import InvalidError, StepafError, TimeoutError
from ._types import (Answer, Direction, DType, Group, Key, Link, MemberState, Role, Timeline,
                     TraceRecord, dtype_name, dtype_number, mem_kind)

TensorLike = Any
"""A Tensor, or an object with the buffer protocol, DLPack or __cuda_array_interface__."""

Pairs = Union[Mapping[int, TensorLike], Sequence[Tuple[int, TensorLike]]]

_core.hooks.update(answer=Answer, link=Link, timeline=Timeline, trace=TraceRecord)

_open: "weakref.WeakSet[Context]" = weakref.WeakSet()


def _close_all() -> None:
    for context in list(_open):
        context._close(True)


atexit.register(_close_all)


def _number(choice: Optional[object], names: "dict[str, int]", what: str) -> int:
    if choice is None:
        return -1
    if isinstance(choice, int):
        return int(choice)
    try:
        return names[str(choice)]
    except LookupError:
        raise ValueError(f"{what} is {choice!r}, not one of {', '.join(names)}") from None


def _sizes(shape: "Union[int, Iterable[int]]") -> Tuple[int, ...]:
    one: Any = shape
    try:
        return (operator.index(one),)
    except TypeError:  # arrays of several sizes have __index__, too
        return tuple(operator.index(size) for size in one)


def _key_number(key: int) -> int:
    number = operator.index(key)
    if not 0 <= number < 1 << 64:
        raise InvalidError(f"a key of {number}, which is not of 64 bits",
                           _core.STATUSES["STEPAF_ERR_INVALID"])
    return number


class Context(_core.Context):
    """A rank's membership in a job.

    Joins the job that the launcher has started: under mpirun or srun through PMIx or MPI, or with
    STEPAF_LOCAL_SIZE and STEPAF_LOCAL_RANK, as STEPAF_BOOT says. Collective. As a context manager,
    the context is closed at the end.

    role: "attention" or "ffn". split: such as "attn=2,ffn=1". None: from environment and launcher.
    progress: "inline", or "thread" for a progress thread. threads: "multiple" (any thread may call,
    as Python programs expect), or "single", which saves the lock.

    Several threads may call unless threads is "single". Calls that wait release the interpreter
    lock.
    """

    def __init__(self, role: Union[Role, str, None] = None, *, split: Optional[str] = None,
                 progress: Optional[str] = None, threads: str = "multiple") -> None:
        roles = {"attention": int(Role.ATTENTION), "ffn": int(Role.FFN)}
        modes = {"inline": _core.INLINE, "thread": _core.THREAD}
        kinds = {"single": _core.SINGLE, "multiple": _core.MULTIPLE}
        _boot.prepare()
        super().__init__(_number(role, roles, "role"), _number(progress, modes, "progress"),
                         _number(threads, kinds, "threads"), split)
        _open.add(self)

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the job. Waits of other threads end with CanceledError, within 0.1 s.

        Peers that still need this rank get PeerLostError. Tensors of the context become invalid.
        While arrays or memoryviews of its memory are alive (see exports), their memory stays, and the
        rank leaves when the last of them has ended, or when the interpreter exits: stop daemon threads
        that use the memory before that, which the exit unmaps. While memory stays, a barrier or commit
        of another thread ends by itself, and close waits for it.
        """
        self._close(False)

    # ---- ranks

    @property
    def role(self) -> Role:
        """This rank's role."""
        return Role(self._role())

    @property
    def rank(self) -> int:
        """This rank's index in the group of its role."""
        return self._rank(Group.FFN if self.role == Role.FFN else Group.ATTENTION)

    @property
    def world_rank(self) -> int:
        """This rank's index in the world."""
        return self._rank(Group.WORLD)

    def size(self, group: Group = Group.WORLD) -> int:
        """Number of ranks in a group."""
        return self._size(group)

    @property
    def n_attention(self) -> int:
        """Number of attention ranks."""
        return self._size(Group.ATTENTION)

    @property
    def n_ffn(self) -> int:
        """Number of FFN ranks."""
        return self._size(Group.FFN)

    @property
    def n_peers(self) -> int:
        """Number of ranks of the other role that this rank exchanges tensors with."""
        return self._n_peers()

    def world_rank_of(self, group: Group, rank: int) -> int:
        """World rank of a member of a group; -1 if there is none."""
        return self._world_rank(group, rank)

    @property
    def epoch(self) -> int:
        """Number of successful commits."""
        return self._epoch()

    # ---- commits and members

    def commit(self, *, lost: Optional[str] = None, returning: Optional[str] = None,
               leaving: bool = False) -> None:
        """Put all declarations since the last commit into force. Collective.

        lost: "refuse", or "leave" to go on without lost ranks. returning: "keep_out", or "admit" for
        processes that ask for a lost rank's place. None: the settings STEPAF_LOST and STEPAF_RETURN.
        leaving: this rank leaves the job with this commit; afterwards its context can only be closed.
        Raises StateError if there is nothing to change. See stepaf_commit_with(3).
        """
        losts = {"refuse": _core.REFUSE_LOST, "leave": _core.LEAVE_LOST}
        returns = {"keep_out": _core.KEEP_OUT, "admit": _core.ADMIT}
        self._commit(_number(lost, losts, "lost"), _number(returning, returns, "returning"), leaving)

    def members(self) -> "list[MemberState]":
        """The state of each rank, by world rank, as known to this rank. Does not block."""
        return [MemberState(state) for state in self._members()]

    # ---- keys and memory

    def declare(self, key: int, direction: Direction, shape: "Union[int, Iterable[int]]",
                dtype: DType = "u8", *, depth: int = 0, device: Optional[object] = None) -> Key:
        """Declare a key; in force from the next commit.

        shape: of the largest tensor; its first dimension may be smaller in an operation. depth: the
        number of buffers, and therefore of batches in flight (0: the setting STEPAF_DEPTH). device:
        "cpu" or "cuda", of the receive buffers and destinations in this rank. All ranks must declare
        the key alike.
        """
        sizes, number = _sizes(shape), _key_number(key)
        name = dtype_name(dtype)
        nbytes = math.prod(sizes) * _core.DTYPE_BYTES[name]
        if not 0 <= nbytes < 1 << 32:
            raise InvalidError(f"key {number}: a shape of {sizes}, which has {nbytes} bytes",
                               _core.STATUSES["STEPAF_ERR_INVALID"])
        self._declare(number, direction, nbytes, _core.DTYPES[name], sizes or None, depth,
                      mem_kind(device))
        made = Key(key)
        made.direction, made.shape, made.dtype, made.nbytes = direction, sizes, name, nbytes
        made.device = str(device or "cpu")
        return made

    def push_key(self, key: int, shape: "Union[int, Iterable[int]]", dtype: DType = "u8", *,
                 depth: int = 0, device: Optional[object] = None) -> Key:
        """Declare a key that attention ranks push; see declare."""
        return self.declare(key, Direction.PUSH, shape, dtype, depth=depth, device=device)

    def pull_key(self, key: int, shape: "Union[int, Iterable[int]]", dtype: DType = "u8", *,
                 depth: int = 0, device: Optional[object] = None) -> Key:
        """Declare a key that attention ranks pull; see declare."""
        return self.declare(key, Direction.PULL, shape, dtype, depth=depth, device=device)

    def withdraw(self, key: int) -> None:
        """Withdraw a key; in force from the next commit."""
        self._withdraw(_key_number(key))

    def set_recv(self, key: int, buffer: TensorLike, ranks: Optional[Sequence[int]] = None) -> None:
        """Provide the memory in which a key is received from these attention ranks, in equal slices
        (FFN ranks). The buffer is registered, and stays registered."""
        self._set_recv(_key_number(key), buffer, ranks)

    def alloc(self, shape: "Union[int, Iterable[int]]", dtype: DType = "u8", *,
              device: Optional[object] = None) -> Tensor:
        """Allocate zeroed memory that peers on the node can write to directly.

        The memory is freed by free, by the commit after the last reference has ended, or by close.
        """
        return self._alloc(_core.DTYPES[dtype_name(dtype)], _sizes(shape), mem_kind(device))

    # ---- plans

    def plan(self, push: Pairs, pull: Pairs = (), *, scatter: bool = False,
             stream: bool = False) -> Plan:
        """Compile an exchange (attention ranks).

        push: {key: tensor} or pairs. Every FFN rank gets the same tensors, or with scatter its own
        slice of each. pull: pairs, peer by peer, the same number for each peer. stream: operations
        are enqueued on CUDA streams.
        """
        flags = (_core.SCATTER if scatter else 0) | (_core.STREAM if stream else 0)
        return self._plan(push, pull, flags)

    def plan_ffn(self, keys: Sequence[int], answers: Pairs, *, any: bool = False) -> Plan:
        """Compile the FFN rank's side of a stream plan: the keys that are received, and the sources
        of answers, peer by peer. any: a batch is from any one peer."""
        return self._plan_ffn(keys, answers, _core.STREAM | (_core.ANY if any else 0))

    # ---- batches

    def recv(self, timeout: Optional[float] = None) -> Batch:
        """Receive the next batch of any attention rank (FFN ranks). Seconds; 0 only polls."""
        return self._recv(timeout)

    def recv_many(self, capacity: int, timeout: Optional[float] = None) -> "list[Batch]":
        """Receive the batches that have arrived: at least one, at most capacity."""
        batches = self._recv_list(False, False, timeout, capacity)
        return [batch for batch in batches if batch is not None]

    def recv_each(self, timeout: Optional[float] = None, *,
                  skip_lost: bool = False) -> "list[Optional[Batch]]":
        """Receive the next batch of each attention rank, in rank order. skip_lost: None stands for
        the batch of a lost rank."""
        return self._recv_list(True, skip_lost, timeout, 0)

    async def recv_async(self, timeout: Optional[float] = None) -> Batch:
        """Receive the next batch of any attention rank, while other tasks run."""
        def look() -> Optional[Batch]:
            try:
                return self._recv(0)
            except TimeoutError:
                return None

        return await _aio.poll(self, look, timeout, lambda: self._recv(_aio.LAST_S))

    # ---- the rest

    def barrier(self, group: Group = Group.WORLD, timeout: Optional[float] = None) -> None:
        """Wait until every member of the group has called barrier."""
        self._barrier(group, timeout)

    def map_check(self, timeout: Optional[float] = None) -> str:
        """Verify every link. World rank 0 returns the map of the job. Collective."""
        return self._map_check(timeout)

    def trace(self, capacity: int = 4096) -> "list[TraceRecord]":
        """The newest trace records, oldest first."""
        return self._trace(capacity)

    def __repr__(self) -> str:
        if self.closed:
            return "<stepaf.Context, closed>"
        return f"<stepaf.Context, {self.role.name} {self.rank}, {self.n_peers} peers>"


def view(tensor: Tensor, shape: "Union[int, Iterable[int]]", dtype: Optional[DType] = None) -> Tensor:
    """The first bytes of a tensor, with another shape and element type."""
    kind = tensor.dtype if dtype is None else dtype
    return tensor._view(_sizes(shape), -1 if kind is None else dtype_number(kind))


def as_tensor(tensor: TensorLike) -> Tensor:
    """A Tensor of another object's memory; it keeps the object. An object that is used repeatedly
    is read only once in this way."""
    return _core.as_tensor(tensor)


def wait_any(requests: Sequence[Optional[Request]], timeout: Optional[float] = None) -> int:
    """Wait until one of the requests, all of one context, is complete; returns its index. Requests
    that are None, or have been waited for, are left out. Raises the failure of the request."""
    return _core.wait_any(requests, timeout)


def respond_many(batches: Sequence[Optional[Batch]], tensors: "Union[TensorLike, list[TensorLike]]",
                 rows: Optional[Sequence[int]] = None, *, release: bool = True) -> None:
    """Answer batches with consecutive rows of the same tensors. rows: how many for each batch; None:
    as many as its first tensor has. Raises the first failure, which does not stop the others."""
    _core.respond_many(batches, tensors, rows, release)


__all__ = ["Context", "Pairs", "StepafError", "TensorLike", "as_tensor", "respond_many", "view",
           "wait_any"]
