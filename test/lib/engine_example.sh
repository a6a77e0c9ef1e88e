#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/engine.c does what docs/engine.md says: nothing is wrong in any numbers of ranks, an FFN rank and an
# attention rank may be lost, and one that is late is waited for. engine_stream.cu compiles where nvcc is, and
# runs where a GPU is.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}" "${CC:=cc}"
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
libraries=$(cd "$top_builddir" && pwd)/.libs
engine=$directory/engine
# shellcheck disable=SC2086
$CC ${CFLAGS:-} -Wall -Wextra -Werror -I"$top_builddir/include" -I"$top_srcdir/include" "$top_srcdir/examples/engine.c" \
    -o "$engine" -L"$libraries" -Wl,-rpath,"$libraries" -lstepaf || exit 1

# begin ATTENTION FFN [WORD]: start the ranks; $pids.
begin()
{
    export STEPAF_SPLIT="attn=$1,ffn=$2" STEPAF_LOCAL_SIZE=$(($1 + $2)) STEPAF_LOCAL_JOB="engine-$$"
    shift 2
    pids=
    for rank in $(seq 0 $((STEPAF_LOCAL_SIZE - 1))); do
        # Not by way of timeout, so that the ranks are this shell's.
        STEPAF_LOCAL_RANK=$rank "$engine" "$@" >"$directory/said.$rank" 2>&1 </dev/null &
        pids="$pids $!"
    done
}

# await KILLED: all ranks have ended, the one with that number by a signal, or none.
await()
{
    number=0
    for pid in $pids; do
        wait "$pid"
        status=$?
        expected=0
        [ "$number" != "$1" ] || expected=137
        [ $status -eq $expected ] || { echo "rank $number: exit code $status"; cat "$directory"/said.*; exit 1; }
        number=$((number + 1))
    done
    cat "$directory"/said.* | tee "$directory/said"
    rm "$directory"/said.*
}

# said N PATTERN: so many lines are like that.
said()
{
    n=$(grep -c -- "$2" "$directory/said")
    [ "$n" -eq "$1" ] || { echo "$n lines instead of $1 are like: $2"; exit 1; }
}

begin 1 1
await none
said 1 ': 0 of 36864 wrong, 1 of 1 FFN ranks left$'
begin 2 3 lose
await 4
said 2 ': 0 of 36864 wrong, 2 of 3 FFN ranks left$'
begin 2 3 leave # whoever waits for the attention rank that is lost looks after it
await 1
said 1 '^attention rank 0: 0 of 36864 wrong, 3 of 3 FFN ranks left$'

STEPAF_TIMEOUT_US=200000 begin 1 2 late
last=${pids##* }
turns=0
until grep -q '^late: FFN rank 1 ' "$directory/said.0"; do
    turns=$((turns + 1))
    [ $turns -lt 600 ] || { echo "nobody says that FFN rank 1 is late"; kill -KILL $pids; exit 1; }
    sleep 0.1
done
# It has stopped once.
while kill -CONT "$last" 2>/dev/null; do
    sleep 0.1
done
await none
said 1 ': 0 of 36864 wrong, 2 of 2 FFN ranks left$'

nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc) || {
    echo "engine.c does what docs/engine.md says; engine_stream.cu was left out: nvcc is not installed"
    exit 0
}
"$nvcc" -std=c++17 -Xcompiler -Wall,-Wextra -Werror all-warnings -I"$top_builddir/include" -I"$top_srcdir/include" \
    "$top_srcdir/examples/engine_stream.cu" -o "$engine" -L"$libraries" -Xlinker -rpath="$libraries" -lstepaf || exit 1
if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    echo "engine.c does what docs/engine.md says; engine_stream.cu compiles, and takes a GPU to run"
    exit 0
fi
begin 1 1
await none
said 1 ': 0 of 36864 wrong after 5 steps$'
begin 2 2
await none
said 2 ': 0 of 36864 wrong after 5 steps$'
echo "engine.c and engine_stream.cu do what docs/engine.md says"
