#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# With the counting of pieces taken out on purpose (uncounted.patch, of a copy of count.c), the test in which nothing has
# an order finds wrong bytes, over either made-up fabric; with it, it passes.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
here=test/unit/transport/fabric
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0
tried=0

fail()
{
    echo "FAILED: $*"
    tail -n 40 "$directory/out"
    failed=1
}

# both FABRIC: the test as it is, and without the counting.
both()
{
    grep -q "^#define HAVE_$(echo "$1" | tr '[:lower:]' '[:upper:]') 1" "$top_builddir/config.h" || return
    tried=$((tried + 1))
    counted=test/unit/transport/$1/test_order
    uncounted=$here/uncounted_$1
    # An outer make's options and variables are not for this one.
    (cd "$top_builddir" && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s "$counted" "$uncounted") \
        >"$directory/out" 2>&1 || { fail "$uncounted cannot be built"; return; }
    "$top_builddir/$counted" >"$directory/out" 2>&1 || { fail "$counted fails"; return; }
    ! "$top_builddir/$uncounted" >"$directory/out" 2>&1 || { fail "$uncounted passes"; return; }
    grep -q 'CU_ASSERT_EQUAL(n_wrong,0)' "$directory/out" || { fail "$uncounted fails, but finds no wrong bytes"; return; }
    echo "$1: $(grep -c ' had failures:$' "$directory/out") cases fail without the counting"
}

patch --version >/dev/null 2>&1 || { echo "SKIP: no patch"; exit 77; }
both ofi
both ucx
[ $tried -gt 0 ] || { echo "SKIP: this build has neither libfabric nor UCX"; exit 77; }
exit $failed
