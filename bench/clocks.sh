#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Where a round trip between two GPUs goes, by clocks in the kernels:
#
#   bench/clocks.sh [-o DIRECTORY] SOURCE [STEPAF_PERF'S OPTION...]
#
# SOURCE is an unpacked tarball of "make dist". A copy of it in DIRECTORY (./build-clocks) gets the stamps of clocks.patch
# and is built there; the tree itself has none. Without options 8 bytes and the layer of 128 rows are measured, one
# microbatch by graphs; CONFIGURE_FLAGS are added to configure's. The stamps cost something: the first line of times says
# what the round trip takes with them, and stepaf_perf of the tree what it takes without.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=$PWD/build-clocks
if [ "${1:-}" = -o ]; then
    out=${2:-}
    shift 2
fi
if [ $# -eq 0 ] || [ ! -f "$1/configure" ]; then
    sed -n '3,11s/^#\( \|$\)//p' "$0"
    exit 2
fi
source=$(cd "$1" && pwd)
shift
. "$source/test/mpi/env.sh"
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1

build()
{
    rm -rf "$out/source" && cp -r "$source" "$out/source" && cd "$out/source" && patch -s -p1 <"$here/clocks.patch" &&
        mkdir -p "$out/build" && cd "$out/build" || return
    # shellcheck disable=SC2086
    "$out/source/configure" -q --with-cuda=yes --with-mpi=yes ${CONFIGURE_FLAGS:-} && make -s -j"$(nproc)" stepaf_perf
}
if ! (build) >"$out/build.log" 2>&1 </dev/null; then
    tail -n 30 "$out/build.log"
    exit 1
fi

# measure OPTION...
measure()
{
    rm -f "$out"/stamps.*
    echo "== $*"
    CLOCKS_FILE=$out/stamps mpi_run 2 "$out/build/stepaf_perf" af --split attn=1,ffn=1 --mem cuda --graph --no-floor "$@" |
        sed -n '/^ *[0-9]/p' || return
    python3 "$here/clocks.py" "$out/stamps.0" "$out/stamps.1"
}
if [ $# -gt 0 ]; then
    measure "$@"
else
    measure --size 8 && measure --shape 128x7168 --push-dtype u8 --pull-dtype bf16 --route-topk 8
fi
