#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernels of src/device, on a machine that is made up: see kernels_machine.
set -eu
if [ -z "${TEST_CXX:-}" ]; then
    echo "skipped: configure has found no C++ compiler"
    exit 77
fi
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
unit=$top_srcdir/test/unit/device
# Fibers jump from stack to stack, which a fortified longjmp takes for an error.
$TEST_CXX -std=c++17 -O1 -U_FORTIFY_SOURCE -Wall -Wextra ${WERROR:-} -Wno-unknown-pragmas -I"$unit" \
    -I"$unit/kernels_machine" -I"$top_srcdir/src" -o "$directory/kernels" "$unit/test_all_kernels.cc"
"$directory/kernels"
