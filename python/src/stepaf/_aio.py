# SPDX-License-Identifier: Apache-2.0
"""Waiting in asyncio.

The event loop's own thread looks whether something has come: so no second thread calls the library,
which a context for a single thread would not allow. For the first millisecond it looks whenever the
loop has nothing better to do, and from then on about every millisecond.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Coroutine, Generator, Optional, TypeVar

from . import _core
from ._errors import WouldBlockError

T = TypeVar("T")

EAGER_S = 0.001
PAUSE_S = 0.001


LAST_S = 1e-6
"""The time-out of a wait whose time has passed: it looks once more, and says who is late."""


async def poll(look: Callable[[], Optional[T]], timeout: float, at_end: Callable[[], T]) -> T:
    """Call look until it returns something; at_end, when the time has passed."""
    began = time.monotonic()
    while True:
        found = look()
        if found is not None:
            return found
        waited = time.monotonic() - began
        if waited >= timeout:
            return at_end()
        await asyncio.sleep(0 if waited < EAGER_S else PAUSE_S)


def limit_of(context: _core.Context, timeout: Optional[float]) -> float:
    """The timeout, or the default one."""
    return context.default_timeout if timeout is None else timeout


async def wait(request: _core.Request, timeout: Optional[float] = None) -> None:
    """Wait until the request is complete, while other tasks run. Raises what Request.wait does."""
    def at_end() -> bool:
        request.wait(LAST_S)
        return True

    await poll(lambda: True if request.test() else None, limit_of(request.context, timeout), at_end)


async def _start(plan: _core.Plan, push: Optional[Any] = None, *, timeout: Optional[float] = None,
                 **how: Any) -> _core.Request:
    def look() -> Optional[_core.Request]:
        try:
            return plan._start_kept(push, **how)
        except WouldBlockError:
            return None

    return await poll(look, limit_of(plan.context, timeout),
                      lambda: plan._start_kept(push, wait=True, timeout=LAST_S, **how))


def _await(request: _core.Request) -> Generator[Any, None, None]:
    return wait(request).__await__()


def _start_async(plan: _core.Plan, args: "tuple[Any, ...]",
                 kwargs: "Optional[dict[str, Any]]") -> "Coroutine[Any, Any, _core.Request]":
    return _start(plan, *args, **(kwargs or {}))


_core.hooks.update({"await": _await, "start_async": _start_async})
