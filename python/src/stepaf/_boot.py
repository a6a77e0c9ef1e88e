# SPDX-License-Identifier: Apache-2.0
"""MPI in a program that has none: where a launcher offers nothing else, MPI is initialized here."""

from __future__ import annotations

import atexit
import os

from . import _core


def _wants_mpi() -> bool:
    """As the library chooses, where the program itself has no MPI."""
    if os.environ.get("STEPAF_JOIN"):
        return False  # it takes a lost rank's place, and no launcher knows of it
    boot = os.environ.get("STEPAF_BOOT", "auto")
    if boot != "auto":
        return boot == "mpi"
    if os.environ.get("STEPAF_LOCAL_SIZE") or os.environ.get("STEPAF_MEET"):
        return False
    if "TORCHELASTIC_RUN_ID" in os.environ and "MASTER_ADDR" in os.environ:
        return False  # torchrun has started this process itself
    if "PMIX_NAMESPACE" in os.environ and "PMIX_RANK" in os.environ:
        return False
    return "PMI_RANK" in os.environ or "OMPI_COMM_WORLD_SIZE" in os.environ


def prepare() -> None:
    """Initialize MPI, if the bootstrap takes it and nobody has. It is finalized at exit."""
    if not _wants_mpi():
        return
    import ctypes

    from . import library

    beside = os.path.join(os.path.dirname(library), "libstepaf_mpi.so.1")
    try:
        # Open MPI's components look for its symbols among those that all see.
        mpi = ctypes.CDLL(beside if os.path.exists(beside) else "libstepaf_mpi.so.1",
                          mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return  # the library says it in its own words
    flag = ctypes.c_int(0)
    if mpi.MPI_Initialized(ctypes.byref(flag)) or flag.value:
        return
    if mpi.MPI_Init(None, None):
        return

    def finalize() -> None:
        done = ctypes.c_int(0)
        if not mpi.MPI_Finalized(ctypes.byref(done)) and not done.value:
            mpi.MPI_Finalize()

    # Contexts are closed before: what was registered last runs first.
    from . import _context
    atexit.unregister(_context._close_all)
    atexit.register(finalize)
    atexit.register(_context._close_all)


_ = _core
