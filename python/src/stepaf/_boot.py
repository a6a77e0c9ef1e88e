# SPDX-License-Identifier: Apache-2.0
"""MPI in a program without MPI: initializes it where a launcher offers nothing else."""

from __future__ import annotations

import atexit
import os

from . import _core


def _wants_mpi() -> bool:
    """Choose as the library does, where the program itself has no MPI."""
    if os.environ.get("STEPAF_JOIN"):
        return False  # it takes a lost rank's place, unknown to any launcher
    boot = os.environ.get("STEPAF_BOOT", "auto")
    if boot != "auto":
        return boot == "mpi"
    if os.environ.get("STEPAF_LOCAL_SIZE") or os.environ.get("STEPAF_MEET"):
        return False
    if "TORCHELASTIC_RUN_ID" in os.environ and "MASTER_ADDR" in os.environ:
        return False  # torchrun has started this process
    if "PMIX_NAMESPACE" in os.environ and "PMIX_RANK" in os.environ:
        return False
    return "PMI_RANK" in os.environ or "OMPI_COMM_WORLD_SIZE" in os.environ


def prepare() -> None:
    """Initialize MPI, if the bootstrap uses it and nothing else has. It is finalized at exit."""
    if not _wants_mpi():
        return
    import ctypes

    from . import library

    beside = os.path.join(os.path.dirname(library), "libstepaf_mpi.so.1")
    try:
        # Open MPI's components look up its symbols in the global scope.
        mpi = ctypes.CDLL(beside if os.path.exists(beside) else "libstepaf_mpi.so.1",
                          mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return  # the library reports the failure itself
    flag = ctypes.c_int(0)
    if mpi.MPI_Initialized(ctypes.byref(flag)) or flag.value:
        return
    if mpi.MPI_Init(None, None):
        return

    def finalize() -> None:
        done = ctypes.c_int(0)
        if not mpi.MPI_Finalized(ctypes.byref(done)) and not done.value:
            mpi.MPI_Finalize()

    # Contexts are closed first: atexit runs the last registration first.
    from . import _context
    atexit.unregister(_context._close_all)
    atexit.register(finalize)
    atexit.register(_context._close_all)


_ = _core
