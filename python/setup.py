# SPDX-License-Identifier: Apache-2.0
"""Build stepaf. The library need not be installed: only its headers are used, those of the checkout
(or tarball) that this directory is in, or their copies in a source distribution."""

import pathlib
import re
import shutil
import sysconfig

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent if (HERE.parent / "include" / "stepaf").is_dir() else HERE
HEADERS = TOP / "include"
if not (HEADERS / "stepaf").is_dir():
    raise SystemExit(f"stepaf: the headers are missing: there is no include/stepaf in {HERE.parent} or {HERE}. "
                     "pip before 21.3 builds a copy of this directory alone: upgrade it (pip install 'pip>=21.3').")
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def version():
    text = (TOP / "VERSION").read_text()
    return re.search(r"^version=(.*)$", text, re.M).group(1)


class SourceDistribution(sdist):
    """Takes the headers and the version along."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        base = pathlib.Path(base_dir)
        shutil.copy(TOP / "VERSION", base / "VERSION")
        shutil.copytree(HEADERS, base / "include", dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("Makefile.inc", "version.h"))


class StableWheel(bdist_wheel):
    """One wheel for all Pythons from 3.9 on, as far as they have the stable ABI."""

    def finalize_options(self):
        if not FREE_THREADED:
            self.py_limited_api = "cp39"
        super().finalize_options()


macros = [("STEPAF_PACKAGE_VERSION", '"%s"' % version()), ("_GNU_SOURCE", "1")]
if not FREE_THREADED:
    macros.append(("Py_LIMITED_API", "0x03090000"))

setup(
    version=version(),
    license="Apache-2.0",
    ext_modules=[
        Extension(
            "stepaf._core",
            sources=sorted(str(path.relative_to(HERE)) for path in (HERE / "core").glob("*.c")),
            depends=sorted(str(path.relative_to(HERE)) for path in (HERE / "core").glob("*.h")),
            include_dirs=[str(HEADERS)],
            define_macros=macros,
            extra_compile_args=["-std=gnu11", "-fvisibility=hidden", "-O2", "-Wall", "-Wextra",
                                "-Wno-missing-field-initializers", "-Wno-cast-function-type"],
            libraries=["dl"],
            py_limited_api=not FREE_THREADED,
        )
    ],
    cmdclass={"sdist": SourceDistribution, "bdist_wheel": StableWheel},
)
