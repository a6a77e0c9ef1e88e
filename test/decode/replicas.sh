#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each expert on two FFN ranks: one of them is killed in the middle of decoding, and started again. Every token
# is the reference's, and the rank that has returned answers again.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
. "$top_srcdir/test/decode/prepare.sh"
models=$top_srcdir/bench/decode/model

# expect CODE ARGUMENT...: the output is in the files out and err.
expect()
{
    code=$1
    shift
    timeout -k 10 120 "$decode" --quiet "$@" >"$directory/out" 2>"$directory/err" </dev/null
    is=$?
    [ "$is" -eq "$code" ] || fail "stepaf_decode $*: exit code $is instead of $code"
}

# lines NUMBER PATTERN: of the output, so many are like it.
lines()
{
    [ "$(grep -Ec -- "$2" "$directory/out")" -eq "$1" ]
}

# replaced MODEL ARGUMENT...: with 2 attention and 4 FFN ranks. On a busy machine all may be over before the process
# that is started again asks; then answers take longer.
replaced()
{
    model=$models/$1
    shift
    for delay in 1000 10000 40000; do
        expect 0 --procs 6 --split attn=2,ffn=4 --replicas 2 --model "$model" \
            --verify "$model/reference.json" --kill-after 100 --ffn-delay-us $delay "$@"
        lines 2 '^reference +320 of 320 tokens equal, in 5 of 5 sequences$' || fail "not all tokens are equal"
        lines 2 '^ +0 +1 +[01] ' || fail "both attention ranks have lost FFN rank 0, once"
        [ $failed -eq 0 ] || exit 1
        if lines 2 '^ +0 +1 +1 .* [1-9][0-9]*$'; then
            echo "replaced, answers $delay us late: $*"
            grep -E '^time per|^ +0 +1 ' "$directory/out"
            return
        fi
    done
    fail "FFN rank 0 is not back, or does not answer: $*"
}

# Nobody dies.
model=$models/qwen3-moe-tiny
expect 0 --procs 6 --split attn=2,ffn=4 --replicas 2 --model "$model" --verify "$model/reference.json"
lines 1 '^reference +640 of 640 tokens equal, in 10 of 10 sequences$' || fail "not all tokens are equal"

replaced qwen3-moe-tiny
replaced qwen3-moe-tiny --scatter
replaced qwen3-dense-tiny --microbatches 2
(
    export STEPAF_TRANSPORTS=tcp STEPAF_NET_IF=lo
    replaced qwen3-moe-tiny
    exit $failed
) || failed=1

# By hand: the rank is killed, and started, from outside.
export STEPAF_SECRET="of this test alone"
job="--split attn=1,ffn=2 --replicas 2 --quiet --ffn-delay-us 30000 --tokens 8 --verify $model/reference.json --model $model"
# Words are split on purpose.
# shellcheck disable=SC2086
timeout -k 10 120 "$decode" --procs 3 $job --address-file "$directory/address" \
    >"$directory/out" 2>"$directory/err" </dev/null &
launched=$!
for try in $(seq 600); do
    [ ! -s "$directory/address" ] || break
    sleep 0.05
done
STEPAF_JOIN=$(cat "$directory/address") || fail "there is no address after $try looks"
# Who wants the place of a rank that lives waits in vain.
STEPAF_INIT_TIMEOUT_US=200000 STEPAF_JOIN=$STEPAF_JOIN STEPAF_RANK=2 STEPAF_SIZE=3 \
    "$decode" $job >"$directory/late" 2>&1 && fail "it has got the place of a living rank"
grep -q "is not lost" "$directory/late" || fail "$(cat "$directory/late")"
wait $launched || fail "the job of a stranger's time"
lines 1 '^reference +80 of 80' || fail "not all tokens are equal"

# What cannot be.
expect 2 --procs 5 --split attn=2,ffn=3 --replicas 2
grep -q '3 FFN ranks cannot have each expert 2 times' "$directory/err" || fail "no reason"
expect 2 --procs 4 --kill-after 3
expect 2 --procs 4 --address-file "$directory/address"
STEPAF_JOIN=127.0.0.1:1 expect 1 --replicas 2
grep -q 'STEPAF_JOIN takes STEPAF_RANK and STEPAF_SIZE' "$directory/err" || fail "no reason"
exit $failed
