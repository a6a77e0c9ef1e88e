# SPDX-License-Identifier: Apache-2.0
"""StepMesh's Python module on top of libstepaf: the same calls, names, defaults and environment.

For programs that exist. What it costs: every tensor is copied once on each side. push_pull and respond
copy into memory of the library's, wait copies out of it; what get_batch returns lies where it has
arrived. (So one copy of each push and two of each answer, and one more of a push for
register_recv_buffer.) The package ``stepaf`` has none of them. Tensors in GPU memory are copied to the
host and back by torch, in the order of its current stream, and the calls return when that is done.

Tensors are torch's if the program has imported torch; else what ``stepaf.as_tensor`` takes, and those
that arrive are ``stepaf.Tensor``.

StepMesh sets a key up when it is first used. Here one buffer carries all tensors of an operation, with
their keys, shapes and types: FSERVER_LIB_BYTES (32M) is its size, FSERVER_LIB_DEPTH (4) the
operations of a worker that can be in flight; alike on all ranks. Memory that is not used costs nothing,
but for RDMA, which pins it: (depth * workers) times the bytes at a server and as much again for its
answers, depth * (servers + 1) times at a worker.

All failures are exceptions of ``stepaf``; nothing ends the process. docs/stepmesh.md has what differs.
"""

from __future__ import annotations

import time
from typing import Any, List, Optional, Sequence, Tuple

import stepaf

from . import _state
from ._graph import SimpleNotify, map_pinned_tensor, seq_add_one, wait_flag, write_flag

__all__ = ["SimpleNotify", "barrier", "fetch_trace", "finalize", "get_all_handlers", "get_batch",
           "get_nanosecond", "init", "map_pinned_tensor", "push_pull", "register_recv_buffer", "respond",
           "respond_vec", "sent", "seq_add_one", "stop", "wait", "wait_flag", "write_flag"]


def init(plugin_path: Optional[str] = None) -> None:
    """Join the job. Collective: returns when all workers and servers are there.

    With DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT, ranks meet there, which is where worker 0 runs (server
    0 with FSERVER_LIB_ROOT=server). Else, or where STEPAF_BOOT, STEPAF_MEET or STEPAF_LOCAL_SIZE is
    set, as any program of libstepaf, the role by DMLC_ROLE if there is one. A scheduler has nothing to
    do, and need not be started. Raises StateError (a second time), SettingError, and what a start and a
    commit raise; then nothing is joined.
    """
    if plugin_path is not None:
        raise NotImplementedError("plug-ins for accelerators are not supported: libstepaf has its own "
                                  "(python -m stepaf says which)")
    _state.start()


def stop() -> None:
    """Leave the job, behind a barrier of all ranks. Does nothing without init.

    If the barrier fails (a rank has died: PeerLostError; does not come: TimeoutError), the rank has left
    all the same.
    """
    _state.stop()


finalize = stop


def push_pull(push_tensors: Sequence[Any], push_keys: Sequence[int], pull_tensors: Sequence[Any],
              pull_keys: Sequence[int], need_event: bool = True) -> int:
    """Push tensors to every server, and expect answers: pull tensor s * B + i is answer i of server s.

    Returns a handle. push_tensors may be overwritten at once. Tensors may be of no rows. Does not wait,
    unless FSERVER_LIB_DEPTH operations are in flight: then until the oldest is complete, whose
    pull tensors it writes. need_event changes nothing: see the module for tensors in GPU memory.

    Raises InvalidError (counts), PullsError (not a multiple of the servers), SizeError (more than
    FSERVER_LIB_BYTES), TimeoutError, PeerLostError; then nothing is sent. Workers only.
    """
    return _state.worker().push_pull(push_tensors, push_keys, pull_tensors, pull_keys)


def wait(handler: int, timeout_ms: int = 10000) -> None:
    """Wait for an operation; then its answers are in the pull tensors.

    An answer of fewer bytes than its tensor is in the tensor's first ones. TimeoutError names a server
    that has not answered, and the operation goes on: wait again. Other failures (PeerLostError,
    SizeError, ProtocolError) end it, and are raised once. The handle of one tensor waits for all.
    """
    _state.worker().wait(handler, timeout_ms / 1000)


def get_batch(timeout_ms: Optional[int] = None) -> List[Tuple[int, List[Any], List[int]]]:
    """(handle, tensors, keys) of the next batch of each worker, in rank order. Waits without the
    interpreter lock.

    timeout_ms: TimeoutError after that; None, as StepMesh, waits until there are batches, a worker is
    lost (PeerLostError) or stop is called (CanceledError). A handle is good until respond, however
    many batches come before that; the tensors as well, unless one has a registered buffer. A batch
    without pulls needs no respond: the worker's wait does not wait for it. Servers only.
    """
    return _state.server().get_batch(None if timeout_ms is None else timeout_ms / 1000)


def respond(tensors: Sequence[Any], handler: int, need_event: bool = False) -> None:
    """Answer a batch, with a tensor for each of its pulls. Tensors may be overwritten at once; those of
    the batch are not to be read any more.

    Raises HandleError, PullsError (number), SizeError (more than the worker's tensor has): the batch can
    still be answered. Servers only.
    """
    _state.server().respond(tensors, handler)


def respond_vec(ret_buffer: Any, tensors_vec: Sequence[Any], handler_vec: Sequence[int]) -> None:
    """Answer batches with consecutive rows of a buffer: batch i with as many as tensors_vec[i] has.

    StepMesh sends the first rows to all of them; so does FSERVER_LIB_RESPOND_VEC=first.
    """
    _state.server().respond_vec(ret_buffer, tensors_vec, handler_vec)


def register_recv_buffer(tensor: Any, worker_ranks: Sequence[int], push_keys: Sequence[int]) -> None:
    """Receive key push_keys[i] of worker worker_ranks[i] in slice i of a tensor, all of them equal. What
    is in a slice is good until get_batch returns that key of that worker again."""
    _state.server().register(tensor, worker_ranks, push_keys)


def barrier(include_server: bool, include_client: Optional[bool] = None, instance_barrier: bool = True, *,
            include_worker: Optional[bool] = None) -> None:
    """Wait for all servers, all workers, or all of both. include_worker is another name of
    include_client. instance_barrier changes nothing: each rank is an instance."""
    if (include_client is None) == (include_worker is None):
        raise TypeError("one of include_client and include_worker is required")
    workers = bool(include_worker if include_client is None else include_client)
    if _state.is_scheduler() or not (workers or include_server):
        return
    group = stepaf.Group.WORLD
    if not (workers and include_server):
        group = stepaf.Group.FFN if include_server else stepaf.Group.ATTENTION
    _state.context().barrier(group)


def get_all_handlers(handler: int) -> List[int]:
    """A handle for each tensor of an operation, pushes first. Workers only."""
    return _state.worker().handlers(handler)


def fetch_trace(handler: int) -> List[int]:
    """Eight times of an operation that is complete, on the clock of get_nanosecond: start, post, receipt
    and processing of the request, then of the response; 0: not known. Of the server that a pull tensor's
    handle belongs to, else of the last to answer. Processing of the response is its wait's end; the
    server's times are placed by its own durations, half way. The last 1,024 operations are kept.
    """
    return _state.worker().trace(handler)


def get_nanosecond() -> int:
    """The time, in ns, on the clock of time.perf_counter."""
    return time.perf_counter_ns()


def sent(handler: int) -> bool:
    """Whether an operation's tensors (at a server: a batch's answer) have left the rank. The caller's
    own may be overwritten earlier: as soon as push_pull or respond has returned. Not in StepMesh."""
    return _state.either().sent(handler)
