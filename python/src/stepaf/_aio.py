# SPDX-License-Identifier: Apache-2.0
"""Waiting in asyncio.

The event loop's own thread looks whether something has come: so no second thread calls the library,
which a context for a single thread would not allow. For the first millisecond it looks whenever the
loop has nothing better to do, and from then on about every millisecond.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Generator, Optional, TypeVar

from . import _core
from ._errors import TimeoutError

T = TypeVar("T")

EAGER_S = 0.001
PAUSE_S = 0.001


async def poll(look: Callable[[], Optional[T]], timeout: float, what: str) -> T:
    """Call look until it returns something."""
    began = time.monotonic()
    while True:
        found = look()
        if found is not None:
            return found
        waited = time.monotonic() - began
        if waited >= timeout:
            raise TimeoutError(f"{what} has not come in {timeout:g} s",
                               _core.STATUSES["STEPAF_ERR_TIMEOUT"])
        await asyncio.sleep(0 if waited < EAGER_S else PAUSE_S)


async def wait(request: _core.Request, timeout: Optional[float] = None) -> None:
    """Wait until the request is complete, while other tasks run."""
    limit = request.context.default_timeout if timeout is None else timeout
    await poll(lambda: True if request.test() else None, limit, "the answer")


def _await(request: _core.Request) -> Generator[Any, None, None]:
    return wait(request).__await__()


_core.hooks["await"] = _await
