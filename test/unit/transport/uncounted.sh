#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# With the counting of pieces taken out on purpose, the tests of what comes in no order fail, and by what they are there
# to see; with it, they pass. uncounted_NAME.patch is of a copy of the file that counts, which programs of their own are
# linked with.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
here=test/unit/transport
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0

fail()
{
    echo "FAILED: $*"
    tail -n 40 "$directory/out"
    failed=1
}

# both NAME TEST SIGN: the test as it is; and without the counting, when it says SIGN.
both()
{
    uncounted=$here/uncounted_$1
    # An outer make's options and variables are not for this one.
    (cd "$top_builddir" && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s "$here/$2" "$uncounted") \
        >"$directory/out" 2>&1 || { fail "$uncounted cannot be built"; return; }
    "$top_builddir/$here/$2" >"$directory/out" 2>&1 || { fail "$here/$2 fails"; return; }
    ! "$top_builddir/$uncounted" >"$directory/out" 2>&1 || { fail "$uncounted passes"; return; }
    grep -q "$3" "$directory/out" || { fail "$uncounted fails, but not by $3"; return; }
    echo "$1: $(grep -c ' had failures:$' "$directory/out") cases fail without the counting"
}
has() { grep -q "^#define HAVE_$1 1" "$top_builddir/config.h"; }

patch --version >/dev/null 2>&1 || { echo "SKIP: no patch"; exit 77; }
both tcp tcp/test_bad 'Test a message waits for all pieces had failures'
! has OFI || both ofi ofi/test_order 'CU_ASSERT_EQUAL(n_wrong,0)' # wrong bytes
! has UCX || both ucx ucx/test_order 'CU_ASSERT_EQUAL(n_wrong,0)'
exit $failed
