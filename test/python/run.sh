#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run a test of the Python package: run.sh FILE.py. It uses the library and the package of the build
# directory, in Python's development mode, where warnings of this package and leaks are shown.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}" "${PYTHON:=python3}"
PYTHONPATH=$top_builddir/python/site:$top_srcdir/test/python
STEPAF_LIBRARY=$top_builddir/.libs
PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH STEPAF_LIBRARY PYTHONDONTWRITEBYTECODE
exec sh "$top_srcdir/test/with_timeout.sh" "$PYTHON" -X dev  "$@"
