# SPDX-License-Identifier: Apache-2.0
"""The process's one membership in a job, as StepMesh has it."""

from __future__ import annotations

import threading
from typing import Optional

import stepaf

from . import _env
from ._errors import error
from ._server import Server
from ._worker import PULL_KEY, PUSH_KEY, Worker

_lock = threading.Lock()
_context: Optional[stepaf.Context] = None
_worker: Optional[Worker] = None
_server: Optional[Server] = None
_scheduler = False


def start() -> None:
    global _context, _worker, _server, _scheduler
    with _lock:
        if _context is not None or _scheduler:
            raise error(stepaf.StateError, "init has been called")
        setup = _env.read()
        if setup.role == "scheduler":
            _scheduler = True
            return
        made = _env.context(setup)
        try:
            made.push_key(PUSH_KEY, setup.bytes, depth=setup.depth)
            made.pull_key(PULL_KEY, setup.bytes, depth=setup.depth)
            worker = server = None
            if made.role == stepaf.Role.ATTENTION:
                worker = Worker(made, setup.bytes, setup.depth)
            else:
                server = Server(made, setup.bytes, setup.depth, setup.gpu, setup.same_rows)
            made.commit()
        except BaseException:
            made.close()
            raise
        _context, _worker, _server = made, worker, server


def stop() -> None:
    global _context, _worker, _server, _scheduler
    with _lock:
        made, _context, _worker, _server, _scheduler = _context, None, None, None, False
    if made is None:
        return
    try:
        made.barrier()
    finally:
        made.close()


def is_scheduler() -> bool:
    return _scheduler


def timeout() -> float:
    return _context.default_timeout if _context is not None else 10.0


def context() -> stepaf.Context:
    if _context is None:
        raise error(stepaf.StateError, "init has not been called" if not _scheduler else
                    "the scheduler has no part in the job")
    return _context


def worker() -> Worker:
    context()
    if _worker is None:
        raise error(stepaf.RoleError, "this is a server: the call is for workers")
    return _worker


def server() -> Server:
    context()
    if _server is None:
        raise error(stepaf.RoleError, "this is a worker: the call is for servers")
    return _server


def either() -> "Worker | Server":
    context()
    found = _worker or _server
    assert found is not None
    return found
