#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All prompts of both models' reference.json, however the work is divided: every token, the logits
# and the experts are the reference's. The ranks are forked here, and a few times by mpirun.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
. "$top_srcdir/test/decode/prepare.sh"
models=$top_srcdir/bench/decode/model
. "$top_srcdir/test/mpi/env.sh"
runs=0

# verified NAME COMMAND...: it runs, and says that all is equal.
verified()
{
    what=$1
    shift
    runs=$((runs + 1))
    "$@" --quiet --model "$models/$model" --verify "$models/$model/reference.json" \
        >"$directory/out" 2>&1 </dev/null
    is=$?
    if [ $is -ne 0 ] ||
        ! grep -q '640 of 640 tokens equal, in 10 of 10 sequences' "$directory/out"; then
        echo "FAILED: $model, $what: exit code $is"
        cat "$directory/out"
        failed=1
    fi
}

# forked RANKS SPLIT MICROBATCHES [MODE]
forked()
{
    verified "split $2, $3 microbatches, ${4:-broadcast}" timeout -k 10 120 "$decode" \
        --procs "$1" --split "$2" --microbatches "$3" ${4:+"$4"}
}

# Each split with each number of microbatches, broadcast and scattered by turns, which are the
# other way round for the other model. With TEST_LIGHT most splits are one model's, an odd number for each, broadcast and
# scattered: tokens are compared for all elsewhere, and what a sanitizer looks at is the same code in both, but for the
# FFN's, which each has on one, two and five ranks.
microbatches="1 2 3 4"
[ -z "${TEST_LIGHT:-}" ] || microbatches="1 3"
turn=0
for model in qwen3-moe-tiny qwen3-dense-tiny; do
    splits="attn=1,ffn=1 attn=2,ffn=1 attn=1,ffn=2 attn=2,ffn=2 attn=3,ffn=2"
    case ${TEST_LIGHT:+$model} in
    *-moe-*) splits="attn=1,ffn=2 attn=2,ffn=1 attn=3,ffn=2" ;;
    *-dense-*) splits="attn=1,ffn=1 attn=2,ffn=2 attn=3,ffn=2" ;;
    esac
    verified "one process" timeout -k 10 120 "$decode" --single
    for m in $microbatches; do
        for split in $splits; do
            ranks=$(echo "$split" | tr -dc '0-9,' | tr , +)
            turn=$((turn + 1))
            mode=--scatter
            [ $((turn % 2)) -eq 0 ] || mode=
            forked $(($ranks)) "$split" "$m" $mode
        done
    done
    turn=$((turn + 1))
    forked 8 attn=3,ffn=5,interleave 3 --scatter
    forked 3 ffn=1,attn=2 3
    # A sanitizer's findings are not MPI's.
    if [ -n "${HAVE_MPI-1}" ] && [ -z "${SANITIZERS:-}" ]; then
        verified "mpirun" mpi_run 4 "$decode" --split attn=2,ffn=2 --microbatches 3
        verified "mpirun, scatter" mpi_run 5 "$decode" --split attn=3,ffn=2 --scatter
    fi
done
echo "$runs runs"
exit $failed
