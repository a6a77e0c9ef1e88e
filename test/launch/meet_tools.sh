#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tools are ranks of a job whose processes meet over TCP or on a machine: what lacks a rank, or a secret, is said
# within STEPAF_INIT_TIMEOUT_US, at each rank, and nothing is made up in its place.
set -u
. "${top_srcdir:-.}/test/launch/common.sh"
[ -z "${SANITIZERS:-}" ] || { echo "skipped: a plain build shows it"; exit 77; }
build=$(cd "$top_builddir" && pwd)
port=$((30000 + $$ % 10000))
for name in RANK WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID; do
    unset $name
done
export STEPAF_SPLIT=attn=1,ffn=1

# try CODE WORDS COMMAND...: one rank, alone; 30 s stand for ever.
try()
{
    wanted=$1 words=$2
    shift 2
    timeout -k 10 30 "$@" >"$directory/out" 2>"$directory/err" </dev/null
    code=$?
    [ $code -eq "$wanted" ] || fail "$*: exit code $code, not $wanted"
    grep -q "$words" "$directory/err" || fail "$*: it does not say '$words'"
}

# both COMMAND...: two ranks; the first one's output is in out0.
both()
{
    STEPAF_RANK=1 STEPAF_LOCAL_RANK=1 timeout -k 10 60 "$@" >"$directory/out1" 2>"$directory/err1" </dev/null &
    STEPAF_RANK=0 STEPAF_LOCAL_RANK=0 timeout -k 10 60 "$@" >"$directory/out0" 2>"$directory/err0" </dev/null
    code0=$?
    wait $!
    code1=$?
}

perf="$build/stepaf_perf af --no-floor --size 64 --iters 50"
export STEPAF_MEET=127.0.0.1:$port STEPAF_SIZE=2 STEPAF_INIT_TIMEOUT_US=1000000
# shellcheck disable=SC2086
for rank in 0 1; do
    export STEPAF_RANK=$rank
    try 1 "rank $((1 - rank)) did not arrive in time" "$build/stepaf_info" --map
    [ ! -s "$directory/out" ] || fail "a map of ranks that were not there"
    try 1 "rank $rank: .*rank $((1 - rank)) did not arrive in time" $perf
    try 1 "rank $((1 - rank)) did not arrive in time" "$build/stepaf_doctor" process
done
unset STEPAF_RANK

# Both are told that they do not have the same secret.
# shellcheck disable=SC2016,SC2086
both sh -c 'STEPAF_SECRET=$STEPAF_RANK-is-one-secret-of-two-0123456789 exec "$@"' sh $perf
[ $code0 -eq 1 ] && [ $code1 -eq 1 ] || fail "two secrets: exit codes $code0 and $code1"
for rank in 0 1; do
    grep -q "rank $rank: .*secret" "$directory/err$rank" || fail "rank $rank says nothing of the secret"
done

# One map, of the ranks that have been started: over TCP, and on one machine.
export STEPAF_INIT_TIMEOUT_US=30000000
one_map()
{
    both "$build/stepaf_info" --map
    [ $code0 -eq 0 ] && [ $code1 -eq 0 ] || fail "$1: exit codes $code0 and $code1"
    grep -q '^stepaf map, epoch 1: 1 attention and 1 FFN ranks on 1 node$' "$directory/out0" || fail "$1: no map"
    [ ! -s "$directory/out1" ] || fail "$1: rank 1 has a map of its own"
}
one_map "over TCP"
unset STEPAF_MEET STEPAF_SIZE
export STEPAF_LOCAL_SIZE=2 STEPAF_LOCAL_JOB=tools-$$
one_map "on one machine"
unset STEPAF_LOCAL_SIZE STEPAF_LOCAL_JOB

# What is said on purpose, and cannot be done, is no reason to make up a job.
try 1 'STEPAF_MEET is not set' env STEPAF_BOOT=tcp "$build/stepaf_info" --map
# shellcheck disable=SC2086
try 2 'STEPAF_MEET is not set' env STEPAF_BOOT=tcp $perf
for boot in mpi pmix; do
    try 1 "STEPAF_BOOT=$boot, but no launcher has started this process" env STEPAF_BOOT=$boot "$build/stepaf_info" --map
done
exit $failed
