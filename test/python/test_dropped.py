# SPDX-License-Identifier: Apache-2.0
"""What the program drops while it is in use ends later: plans whose batches a peer holds, and memory that
cannot be freed yet; and tensors of plans end with their memory; waits end with an operation that has timed out itself.
For the last three, functions of the library are replaced, where there is a compiler: they fail, or need a plan on
streams."""

import atexit
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

INSTEAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stepaf/memory.h>
#include <stepaf/request.h>
#include <stepaf/stream.h>

int calls, status, signal_number; /* a status that is not 0 is returned */
int timed_out;                    /* so have operations, on streams */
void *place;                      /* of the plan's tensor */

stepaf_status_t stepaf_free(stepaf_context_h ctx, void *ptr)
{
    __typeof__(stepaf_free) *real = (__typeof__(stepaf_free) *)dlsym(RTLD_NEXT, "stepaf_free");

    calls++;
    if (signal_number)
        raise(signal_number);
    return status ? (stepaf_status_t)status : real(ctx, ptr);
}

stepaf_status_t stepaf_wait(stepaf_request_h request, int64_t timeout_us)
{
    __typeof__(stepaf_wait) *real = (__typeof__(stepaf_wait) *)dlsym(RTLD_NEXT, "stepaf_wait");

    calls++;
    return timed_out ? STEPAF_ERR_TIMEOUT : real(request, timeout_us);
}

stepaf_status_t stepaf_wait_any(const stepaf_request_h *requests, int n, int64_t timeout_us, int *index_p)
{
    __typeof__(stepaf_wait_any) *real =
        (__typeof__(stepaf_wait_any) *)dlsym(RTLD_NEXT, "stepaf_wait_any");

    calls++;
    if (!timed_out)
        return real(requests, n, timeout_us, index_p);
    *index_p = 0;
    return STEPAF_ERR_TIMEOUT;
}

stepaf_status_t stepaf_plan_tensor(stepaf_plan_h plan, unsigned slot, int peer, int index,
                                   stepaf_tensor_info_t *info_p)
{
    *info_p = (stepaf_tensor_info_t){.size = info_p->size, .data = place, .bytes = 8, .dtype = STEPAF_U8,
                                     .ndim = 1, .shape = {8}, .mem_kind = STEPAF_MEM_HOST};
    return STEPAF_OK;
}
"""


def replace_functions():
    """Make a library that is the other one but for these functions; returns what can be set in it."""
    compiler = shutil.which(os.environ.get("CC", "cc").split()[-1])
    if not compiler:
        return None
    place = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, place, True)
    source, made = os.path.join(place, "instead.c"), os.path.join(place, "instead.so")
    library = os.path.join(os.path.abspath(os.environ["STEPAF_LIBRARY"]), "libstepaf.so")
    with open(source, "w", encoding="ascii") as file:
        file.write(INSTEAD)
    include = pathlib.Path(__file__).resolve().parents[2] / "include"
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{include}", "-o", made, source, "-Wl,--no-as-needed", library,
                    "-Wl,-rpath," + os.path.dirname(library), "-ldl"], check=True)
    os.environ["STEPAF_LIBRARY"] = made
    return ctypes.CDLL(made)


instead = replace_functions()

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


def plan_tensors(ctx):
    """A destination is its owner's, with its readers; what only the plan has ends with the plan."""
    place = ctypes.c_void_p.in_dll(instead, "place")
    ctx.push_key(X, 8)
    ctx.pull_key(Y, 8)
    if ctx.role == stepaf.Role.FFN:
        ctx.commit()
        ctx.barrier()
        return
    x, y = ctx.alloc(8), ctx.alloc(8)
    pulls, pushes = ctx.plan({X: x}, {Y: y}), ctx.plan({X: x})
    ctx.commit()
    place.value = y.data_ptr()
    tensor = pulls.tensor(0, 0, 0)
    reader = memoryview(tensor)
    pulls.destroy()
    assert tensor.valid and tensor.data_ptr() == y.data_ptr()
    try:
        ctx.free(y)
        raise AssertionError("memory that is being read is freed")
    except BufferError:
        del reader
    ctx.free(y)
    assert not tensor.valid
    place.value = x.data_ptr()
    tensor = pushes.tensor(0, 0, 0)
    assert tensor.valid
    pushes.destroy()
    assert not tensor.valid
    try:
        memoryview(tensor)
        raise AssertionError("memory of a plan that is destroyed")
    except stepaf.HandleError as error:
        assert "plan that is destroyed" in error.text, error
    ctx.barrier()


def own_timeout(ctx):
    """An operation whose plan has ended by a timeout of its own ends the wait, however long that may be."""
    calls, timed_out = (ctypes.c_int.in_dll(instead, name) for name in ("calls", "timed_out"))
    ctx.push_key(X, 8)
    if ctx.role == stepaf.Role.FFN:
        ctx.commit()
        ctx.barrier()
        ctx.recv().release()
        ctx.barrier()
        return
    x = ctx.alloc(8)
    plan = ctx.plan({X: x})
    ctx.commit()
    request = plan.start()
    timed_out.value = 1
    for wait in (lambda: request.wait(60), lambda: stepaf.wait_any([request], 60)):
        calls.value = 0
        try:
            wait()
            raise AssertionError("it has not timed out")
        except TimeoutError:
            assert calls.value == 1, calls.value
    timed_out.value = 0
    ctx.barrier()
    request.wait()
    ctx.barrier()


class Dropped(job.TestCase):
    def test_plans(self):
        self.run_job(dropped_plans)

    @unittest.skipUnless(instead, "no compiler")
    def test_late_memory(self):
        self.run_job(late_memory)

    @unittest.skipUnless(instead, "no compiler")
    def test_own_timeout(self):
        self.run_job(own_timeout)

    @unittest.skipUnless(instead, "no compiler")
    def test_plan_tensors(self):
        self.run_job(plan_tensors)


if __name__ == "__main__":
    job.main()
