# SPDX-License-Identifier: Apache-2.0
"""Waiting in asyncio.

The event loop's own thread polls, so that no second thread calls the library, which a context for
a single thread would not allow. For the first millisecond it polls at every turn of the loop, and
from then on about every millisecond.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Coroutine, Generator, Optional, TypeVar

from . import _core
from ._errors import CanceledError, HandleError, InvalidError, WouldBlockError

T = TypeVar("T")

EAGER_S = 0.001
PAUSE_S = 0.001


LONGEST_S = 1e9
LAST_S = 1e-6
"""The timeout of a wait whose time has passed: it polls once more, and reports who is late."""


async def poll(context: _core.Context, look: Callable[[], Optional[T]], timeout: Optional[float],
               at_end: Callable[[], T]) -> T:
    """Call look until it returns a value, or at_end after the timeout. None: the default."""
    if timeout is None:
        timeout = context.default_timeout
    if not timeout >= 0:
        raise InvalidError(f"a timeout of {timeout:g} s", _core.STATUSES["STEPAF_ERR_INVALID"])
    timeout = min(timeout, LONGEST_S)
    was_open = not context.closed
    began = time.monotonic()
    while True:
        try:
            found = look()
        except HandleError:
            if was_open and context.closed:
                raise CanceledError("the context was closed during the wait",
                                    _core.STATUSES["STEPAF_ERR_CANCELED"]) from None
            raise
        if found is not None:
            return found
        waited = time.monotonic() - began
        if waited >= timeout:
            return at_end()
        await asyncio.sleep(0 if waited < EAGER_S else PAUSE_S)


async def wait(request: _core.Request, timeout: Optional[float] = None) -> None:
    """Wait until the request is complete, while other tasks run. Raises as Request.wait does."""
    def at_end() -> bool:
        request.wait(LAST_S)
        return True

    await poll(request.context, lambda: True if request.test() else None, timeout, at_end)


async def _start(plan: _core.Plan, push: Optional[Any] = None, *, timeout: Optional[float] = None,
                 skip_lost: bool = False, answers: Optional[int] = None,
                 patience: Optional[float] = None) -> _core.Request:
    how: "dict[str, Any]" = dict(skip_lost=skip_lost, answers=answers, patience=patience)

    def look() -> Optional[_core.Request]:
        try:
            return plan._start_kept(push, **how)
        except WouldBlockError:
            return None

    return await poll(plan.context, look, timeout,
                      lambda: plan._start_kept(push, wait=True, timeout=LAST_S, **how))


def _await(request: _core.Request) -> Generator[Any, None, None]:
    return wait(request).__await__()


def _start_async(plan: _core.Plan, args: "tuple[Any, ...]",
                 kwargs: "Optional[dict[str, Any]]") -> "Coroutine[Any, Any, _core.Request]":
    return _start(plan, *args, **(kwargs or {}))


_core.hooks.update({"await": _await, "start_async": _start_async})
