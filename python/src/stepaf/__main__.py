# SPDX-License-Identifier: Apache-2.0
"""``python -m stepaf``: report the library in use, and the machine's transports, with reasons."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys


def _info() -> "str | None":
    """The stepaf_info of the library: in its prefix or its build directory, otherwise in PATH."""
    import stepaf

    above = os.path.dirname(os.path.dirname(os.path.abspath(stepaf.library)))
    for path in (os.path.join(above, "bin", "stepaf_info"), os.path.join(above, "stepaf_info")):
        if os.access(path, os.X_OK):
            return path
    return shutil.which("stepaf_info")


def main() -> int:
    try:
        import stepaf
    except ImportError as error:
        print(error)
        return 1
    print(f"stepaf     {stepaf.__version__} (package), {stepaf.version()} (library)")
    print(f"library    {stepaf.library}")
    print(f"python     {platform.python_version()} ({platform.python_implementation()}), "
          f"{sys.executable}")
    for name in ("torch", "numpy", "cupy", "mpi4py"):
        if name in sys.modules:
            print(f"{name:10} {getattr(sys.modules[name], '__version__', '?')}")
    info = _info()
    if info is None:
        print("transports unknown: stepaf_info is not beside the library, nor in PATH")
        return 0
    print(f"\n{info} -t:")
    sys.stdout.flush()
    return subprocess.run([info, "-t"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
