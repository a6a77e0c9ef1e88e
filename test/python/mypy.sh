#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The package's type hints, and the stubs of its extension, checked by mypy --strict.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}" "${PYTHON:=python3}"

if "$PYTHON" -m mypy --version >/dev/null 2>&1; then
    mypy="$PYTHON -m mypy"
elif command -v mypy >/dev/null; then
    mypy=mypy
else
    echo "SKIP: mypy is not installed"
    exit 77
fi
cache=$(mktemp -d) || exit 99
trap 'rm -rf "$cache"' EXIT
# What torch.py may say differs by torch's version, and neither torch nor vLLM's plugin need be there.
$mypy --strict --ignore-missing-imports --cache-dir "$cache" --exclude 'torch\.py$' --follow-imports silent \
    "$top_srcdir/python/src/stepaf" "$top_srcdir/python/src/fserver_lib"
