#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What stepaf_decode shows and writes: text, tables, files; draws that depend on the seed alone;
# and under mpirun, one reason from one rank for a job that cannot run.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
. "$top_srcdir/test/decode/prepare.sh"
model=$top_srcdir/bench/decode/model/qwen3-moe-tiny
. "$top_srcdir/test/mpi/env.sh"

# expect CODE ARGUMENT...: run it on the MoE model; the output is in the files out and err.
expect()
{
    code=$1
    shift
    timeout -k 10 120 "$decode" --model "$model" "$@" >"$directory/out" 2>"$directory/err" </dev/null
    is=$?
    [ "$is" -eq "$code" ] || fail "stepaf_decode $*: exit code $is instead of $code"
}

# has FILE PATTERN: it has such a line.
has()
{
    grep -Eq -- "$2" "$directory/$1" || fail "no line in $1 like: $2"
}

# The tables, and the first sequence's text as the reference has it.
expect 0 --procs 4 --split attn=2,ffn=2 --prompt 'See also {' --prompt I --tokens 64 --ignore-eos \
    --json "$directory/json" --trace "$directory/trace"
has out '^ +0 +attention +0 .* FFN 0-1: [a-z]'
has out '^ +3 +FFN +1 .* attention 0-1: [a-z]'
has out '^See also \{'
has out '^tokens +128 in '
has out '^tokens/s +[0-9]'
has out '^time per token +p50 [0-9.]+ us, p99 '
has out '^layer +attention +A2F +queue +FFN +F2A +waiting'
has out '^ +3( +[0-9.]+){6}$'
has out '^ +all( +[0-9.]+){6}$'
has out '^round trips +[0-9.]+ % hidden'
# Where ranks have to share cores, waiting for one would count.
if [ "$(getconf _NPROCESSORS_ONLN)" -ge 4 ]; then
    has out '^library +[0-9.]+ % of the time per token'
else
    has out '^library +not told: with more ranks than cores'
fi
has json '"tokens_per_s": [0-9]'
has json '"round_trips_hidden": '
has json '"role": "ffn"'
has trace '"name":"exchange","pid":1'
has trace '"name":"ffn","pid":3'
has trace '"name":"arrived","pid":2'

# Ways to start that are none.
expect 2
has err "no launcher has started this"
expect 2 --procs 1
has err "not a whole number in 2..1024"

# Without the library, and with ids alone.
expect 0 --single --prompt-ids 73,110 --tokens 8
has out '^In'
has out 'without the library'
has out '^tokens +8 in'

# The same seed gives the same text wherever it is made, another one another text.
drawn="--temperature 0.8 --batch 6 --tokens 40 --prompt And --quiet --json $directory/json"
# Words are split on purpose.
# shellcheck disable=SC2086
{
    expect 0 --single --seed 5 $drawn
    sed -n '/"output"/,$p' "$directory/json" >"$directory/one"
    expect 0 --procs 5 --split attn=3,ffn=2 --scatter --microbatches 2 --seed 5 $drawn
    sed -n '/"output"/,$p' "$directory/json" >"$directory/two"
    cmp -s "$directory/one" "$directory/two" || fail "one seed, two texts"
    expect 0 --single --seed 6 $drawn
    sed -n '/"output"/,$p' "$directory/json" >"$directory/two"
    ! cmp -s "$directory/one" "$directory/two" || fail "two seeds, one text"
}

# End-of-sequence ends a sequence, unless told otherwise.
expect 0 --single --prompt 'See also {' --tokens 64
grep -q '^tokens +64 in' "$directory/out" && fail "went on after the end"
expect 0 --single --prompt 'See also {' --tokens 64 --ignore-eos
has out '^tokens +64 in'

# A reference that says something else.
sed 's/"continuation_ids": \[[0-9]*/"continuation_ids": [7/' "$model/reference.json" \
    >"$directory/reference"
expect 1 --procs 2 --verify "$directory/reference" --quiet
has out 'first difference: "one-byte": token 0 is 32, in the reference 7'
has err '^stepaf_decode: not equal to the reference$'
# And one that is undecided itself.
sed 's/"margins": \[[0-9.]*/"margins": [0.0001/' "$directory/reference" >"$directory/undecided"
expect 0 --procs 2 --verify "$directory/undecided" --quiet
has out '10 sequences part from it where its own margin is under 0.001'

# Lanes would leave out FFN ranks that hold a share of each layer.
export STEPAF_MESH=lane
expect 2 --procs 4 --split attn=2,ffn=2 --tokens 2
has err 'needs every FFN rank.*unset STEPAF_MESH=lane$'
unset STEPAF_MESH

# Files are tried before anything is decoded, and what goes wrong later is told as well.
expect 2 --single --json "$directory/none/json"
has err 'cannot be written: No such file'
[ -s "$directory/out" ] && fail "decoded before the file was tried"
expect 2 --procs 2 --json "$directory/none/json"
has err 'cannot be written: No such file'
expect 2 --procs 2 --trace "$directory/none/trace"
has err 'cannot be written: No such file'
[ -s "$directory/out" ] && fail "decoded before the file was tried"
if [ -w /dev/full ]; then
    expect 1 --single --tokens 2 --json /dev/full
    has err 'cannot be written'
    expect 1 --procs 2 --tokens 2 --trace /dev/full
    has err 'cannot be written'
    for how in --single "--procs 2"; do
        # Words are split on purpose.
        # shellcheck disable=SC2086
        "$decode" --model "$model" $how --tokens 2 >/dev/full 2>"$directory/err"
        is=$?
        [ "$is" -eq 1 ] || fail "stepaf_decode $how on a full disk: exit code $is instead of 1"
        has err '^stepaf_decode: standard output: '
    done
fi
expect 0 --help
has out '--split=SPLIT'
expect 0 --version
has out '^stepaf_decode \(libstepaf\) [0-9]'
expect 0 --hel
has out '--split=SPLIT'
expect 0 --vers
[ -s "$directory/err" ] && fail "--vers: more than a version"

if [ -n "${HAVE_MPI-1}" ] && [ -z "${SANITIZERS:-}" ]; then
    mpi_run 3 "$decode" --model /nonexistent >"$directory/out" 2>"$directory/err"
    is=$?
    [ $is -eq 2 ] || fail "mpirun: exit code $is instead of 2"
    [ "$(grep -c '^stepaf_decode: ' "$directory/err")" -eq 1 ] || fail "not one line"
    has err '^stepaf_decode: /nonexistent: no such model directory$'
    mpi_run 3 "$decode" --model "$model" --speed 3 >"$directory/out" 2>"$directory/err"
    is=$?
    [ $is -eq 2 ] || fail "mpirun: exit code $is instead of 2"
    [ "$(grep -c '^stepaf_decode: --speed' "$directory/err")" -eq 1 ] || fail "not one line"
fi
exit $failed
