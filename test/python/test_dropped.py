# SPDX-License-Identifier: Apache-2.0
"""What the program drops while it is in use ends later: plans whose batches a peer holds, and memory that
cannot be freed yet. For the latter, the library's stepaf_free is replaced, where there is a compiler."""

import atexit
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

INSTEAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>

int calls, status, signal_number; /* a status that is not 0 is returned */

int stepaf_free(void *ctx, void *ptr)
{
    int (*real)(void *, void *) = (int (*)(void *, void *))dlsym(RTLD_NEXT, "stepaf_free");

    calls++;
    if (signal_number)
        raise(signal_number);
    return status ? status : real(ctx, ptr);
}
"""


def replace_free():
    """Make a library in which the other one is, but for stepaf_free; returns what can be set in it."""
    compiler = shutil.which(os.environ.get("CC", "cc").split()[-1])
    if not compiler:
        return None
    place = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, place, True)
    source, made = os.path.join(place, "instead.c"), os.path.join(place, "instead.so")
    library = os.path.join(os.path.abspath(os.environ["STEPAF_LIBRARY"]), "libstepaf.so")
    with open(source, "w", encoding="ascii") as file:
        file.write(INSTEAD)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source, "-Wl,--no-as-needed", library,
                    "-Wl,-rpath," + os.path.dirname(library), "-ldl"], check=True)
    os.environ["STEPAF_LIBRARY"] = made
    return ctypes.CDLL(made)


instead = replace_free()

import job  # noqa: E402
import stepaf  # noqa: E402

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


def late_memory(ctx):
    """What cannot be freed in time is kept for the next commit, which a signal may interrupt."""
    calls, status, number = (ctypes.c_int.in_dll(instead, name) for name in ("calls", "status", "signal_number"))
    ctx.push_key(X, 8)
    memory = [ctx.alloc(4096) for _ in range(4)]
    ctx.commit()
    del memory

    def commit(key, expected):
        calls.value = 0
        ctx.push_key(key, 8)
        ctx.commit()
        assert calls.value == expected, (key, calls.value)

    status.value = stepaf._core.STATUSES["STEPAF_ERR_TIMEOUT"]
    commit(Y, 1)
    status.value = stepaf._core.STATUSES["STEPAF_ERR_TRANSPORT"]
    commit(Z, 4)
    status.value, number.value = 0, signal.SIGINT
    ctx.push_key(9, 8)
    calls.value = 0
    try:
        ctx.commit()
        raise AssertionError("not interrupted")
    except KeyboardInterrupt:
        assert calls.value == 1, calls.value
    number.value = 0
    commit(10, 3)
    commit(11, 0)
    ctx.barrier()


class Dropped(job.TestCase):
    def test_plans(self):
        self.run_job(dropped_plans)

    @unittest.skipUnless(instead, "no compiler")
    def test_late_memory(self):
        self.run_job(late_memory)


if __name__ == "__main__":
    job.main()
