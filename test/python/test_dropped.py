# SPDX-License-Identifier: Apache-2.0
"""What the program drops while it is in use ends later: plans whose batches a peer holds."""

import os
import unittest

import job
import stepaf

X, Y, Z = 1, 2, 3
LARGE = 64 << 20


def mapped():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def dropped_plans(ctx):
    """Plans that are gone while the FFN rank holds their batches keep neither keys nor memory."""
    for key in (X, Y, Z):
        ctx.push_key(key, 4096)
    if ctx.role == stepaf.Role.FFN:
        ctx.commit()
        held = [ctx.recv() for _ in range(3)]
        ctx.barrier()  # the plans are dropped
        ctx.barrier()
        for batch in held:
            batch.release()
        del batch, held
        ctx.barrier()
        ctx.withdraw(X)
        ctx.commit()
        ctx.barrier()
        return
    x, y, z = (ctx.alloc(size) for size in (4096, 4096, LARGE))
    plans = [ctx.plan({key: memory[:4096]}) for key, memory in ((X, x), (Y, y), (Z, z))]
    ctx.commit()
    for plan in plans:
        plan.start()
    ctx.barrier()
    before = mapped()
    del plan, plans, z
    for call in (lambda: ctx.withdraw(X), lambda: ctx.free(y)):
        try:
            call()
        except stepaf.StateError:
            continue
        raise AssertionError("a plan is in flight")
    ctx.barrier()
    ctx.barrier()  # all batches are released
    ctx.withdraw(X)
    ctx.free(y)
    ctx.commit()
    assert mapped() < before - LARGE // 2, (before, mapped())
    ctx.barrier()


class Dropped(job.TestCase):
    def test_plans(self):
        self.run_job(dropped_plans)


if __name__ == "__main__":
    job.main()
