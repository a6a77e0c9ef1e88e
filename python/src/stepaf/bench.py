# SPDX-License-Identifier: Apache-2.0
"""The time that Python adds to a start and a wait: ``python -m stepaf.bench``.

Two ranks on this machine exchange a small tensor, in alternating blocks: one from Python, one from
C, in the same process and with the same library. The time of a wait is that of the call alone: the
operation is complete by then. "round trip" is from the start to the end of the wait.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from typing import Callable

import stepaf
from stepaf import _core

BLOCK = 200


def _python(plan: stepaf.Plan, n: int, ready: bool) -> "tuple[list[float], list[float]]":
    now, progress = time.perf_counter_ns, plan.context.progress
    starts: "list[float]" = []
    waits: "list[float]" = []
    for _ in range(n):
        t0 = now()
        request = plan.start()
        t1 = now()
        if ready:
            while not request.peer(0):
                progress()
        t2 = now()
        request.wait()
        t3 = now()
        starts.append(t1 - t0)
        waits.append(t3 - t2 if ready else t3 - t0)
    return starts, waits


def _clock_ns(n: int = 20000) -> float:
    """The time that Python needs to read the clock, which is not part of the calls."""
    now = time.perf_counter_ns
    gaps = []
    for _ in range(n):
        t0 = now()
        t1 = now()
        gaps.append(t1 - t0)
    return sorted(gaps)[n // 20]


def _at(values: "list[float]", share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] / 1000


def _print_row(name: str, c: "list[float]", python: "list[float]") -> None:
    p50, p99 = _at(c, 0.5), _at(c, 0.99)
    q50, q99 = _at(python, 0.5), _at(python, 0.99)
    print(f"{name:12} {p50:8.3f} {p99:9.3f} {q50:8.3f} {q99:9.3f} {q50 - p50:9.3f} "
          f"{_at(python, 0) - _at(c, 0):9.3f} {q50 / max(p50, 0.001):6.2f}")


def _attend(ctx: stepaf.Context, plan: stepaf.Plan, count: int) -> None:
    rows: "dict[str, tuple[list[float], list[float]]]" = {}
    clock = _clock_ns()
    by: "list[tuple[int, Callable[[stepaf.Plan, int, bool], tuple[list[float], list[float]]], float]]"
    by = [(0, _core.measure, 0), (1, _python, clock)]
    for ready in (True, False):
        for _ in range(count // BLOCK):
            for which, run, cost in by:
                starts, waits = run(plan, BLOCK, ready)
                names = ("start", "wait") if ready else ("", "round trip")
                for name, values in zip(names, (starts, waits)):
                    if name:
                        pair = rows.setdefault(name, ([], []))
                        pair[which].extend(value - cost for value in values)
    print(f"Python {sys.version.split()[0]}, libstepaf {stepaf.version()}, "
          f"{count // BLOCK * BLOCK} operations each, {ctx.link(ctx.peer_rank(0)).transport}, us")
    print(f"{'':12} {'C p50':>8} {'C p99':>9} {'py p50':>8} {'py p99':>9} {'added p50':>9} "
          f"{'added min':>9} {'ratio':>6}")
    for name, (c, python) in rows.items():
        _print_row(name, c, python)


def _rank(count: int, threads: str) -> None:
    with stepaf.Context(split="attn=1,ffn=1", threads=threads) as ctx:
        x_key, y_key = ctx.push_key(1, 64), ctx.pull_key(2, 64)
        x, y = ctx.alloc(64), ctx.alloc(64)
        if ctx.role == stepaf.Role.ATTENTION:
            plan = ctx.plan({x_key: x}, {y_key: y})
            ctx.commit()
            _attend(ctx, plan, count)
            return
        ctx.commit()
        for _ in range(count // BLOCK * BLOCK * 4):
            ctx.recv().respond(y)


def main() -> int:
    """Start both ranks, or run as one of them if started as a rank."""
    parser = argparse.ArgumentParser(prog="python -m stepaf.bench", description=__doc__)
    parser.add_argument("--count", type=int, default=20000, help="operations of each kind")
    parser.add_argument("--threads", default="multiple", help="multiple or single")
    options = parser.parse_args()
    if "STEPAF_LOCAL_RANK" in os.environ:
        _rank(options.count, options.threads)
        return 0
    job = dict(os.environ, STEPAF_LOCAL_SIZE="2", STEPAF_LOCAL_JOB=f"bench-{secrets.token_hex(8)}")
    command = [sys.executable, "-m", "stepaf.bench", "--count", str(options.count), "--threads",
               options.threads]
    ranks = [subprocess.Popen(command, env=dict(job, STEPAF_LOCAL_RANK=str(rank)))
             for rank in (0, 1)]
    return max([rank.wait() for rank in ranks])


if __name__ == "__main__":
    sys.exit(main())
