# SPDX-License-Identifier: Apache-2.0
"""Finding libstepaf."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

SONAME = "libstepaf.so.1"


class LibraryNotFoundError(ImportError):
    """No libstepaf that fits this package could be loaded."""


def _named(path: str) -> str:
    return os.path.join(path, SONAME) if os.path.isdir(path) else path


def _pkg_config() -> list[str]:
    try:
        done = subprocess.run(
            ["pkg-config", "--variable=libdir", "libstepaf"],
            capture_output=True, text=True, timeout=10, check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [os.path.join(done.stdout.strip(), SONAME)] if done.stdout.strip() else []


def candidates() -> list[tuple[str, str]]:
    """Where the library may be, in order of preference: (where, path to load)."""
    chosen = os.environ.get("STEPAF_LIBRARY")
    if chosen:
        return [("STEPAF_LIBRARY", _named(chosen))]
    beside = pathlib.Path(__file__).parent / "lib" / SONAME
    found = [("beside the package", str(beside))] if beside.exists() else []
    return found + [
        ("the loader's path", SONAME),
        ("Python's prefix", os.path.join(sys.prefix, "lib", SONAME)),
        ("/usr/local/lib", "/usr/local/lib/" + SONAME),
    ]


def load() -> str:
    """Load the library and return its path."""
    from . import _core

    refused = []
    for where, path in candidates():
        try:
            return _core.load(path) or path
        except OSError as error:
            refused.append(f"{where}: {error}")
    for path in _pkg_config() if "STEPAF_LIBRARY" not in os.environ else []:
        try:
            return _core.load(path) or path
        except OSError as error:
            refused.append(f"pkg-config: {error}")
    raise LibraryNotFoundError(
        "libstepaf cannot be loaded; install it, or set STEPAF_LIBRARY to the file or its directory ("
        + "; ".join(refused) + ")"
    )
