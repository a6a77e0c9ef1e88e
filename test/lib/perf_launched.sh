#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stepaf_perf under mpirun: beside MPI every test runs and verifies, ratios are those of the numbers
# beside them, and ranks that were given different command lines say so instead of waiting.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
perf=$top_builddir/stepaf_perf
skip()
{
    echo "skipped: $1"
    exit 77
}
[ -x "$perf" ] || skip "stepaf_perf is not built"
[ -z "${SANITIZERS:-}" ] || skip "sanitizers are not for programs under mpirun"
unset STEPAF_SPLIT STEPAF_ROLE STEPAF_TRANSPORTS STEPAF_NET_IF
. "$top_srcdir/test/mpi/env.sh"
command -v "$mpiexec" >/dev/null || skip "$mpiexec is not installed"
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0

fail()
{
    echo "FAILED: $*"
    cat "$directory/out" "$directory/err"
    failed=1
}

# expect CODE N WORD...: mpirun it on N ranks; ': -n N PROGRAM' may be among the words.
expect()
{
    code=$1
    shift
    TEST_TIMEOUT_S=120 mpi_run "$@" >"$directory/out" 2>"$directory/err"
    is=$?
    [ "$is" -eq "$code" ] || fail "mpirun -n $*: exit code $is instead of $code"
}

# says PATTERN: one line from all ranks together, and like this.
says()
{
    [ "$(grep -c '^stepaf_perf: ' "$directory/err")" -eq 1 ] || fail "not one line"
    grep -Eq -- "^stepaf_perf: $1" "$directory/err" || fail "no line like: $1"
}

few="--iters 60 --warmup 20 --rounds 2"
split="--split attn=1,ffn=1"
# Words are split on purpose.
# shellcheck disable=SC2086
{
    for test in af push pull push_then_pull bw rate; do
        expect 0 3 "$perf" $test --split attn=1,ffn=2 --size 1,5000 --baseline mpi --check \
            --json "$directory/json" $few
        grep -q '"wrong_bytes": 0,' "$directory/json" || fail "$test: not verified"
        # In each object the row's median comes first, then the baseline's, then the floor's.
        sed -n 's/^ *"\(p50_us\|ratio\)": \([0-9.]*\),*$/\1 \2/p' "$directory/json" | awk '
            $1 == "p50_us" { p50[n++ % 3] = $2 }
            $1 == "ratio"  { off = $2 * p50[(n - 1) % 3] / p50[0] - 1; ratios++
                             if (off > 1e-6 || off < -1e-6) bad = 1 }
            END { exit bad || ratios != 4 }' || fail "$test: a ratio is not that of the medians"
    done
    expect 0 3 "$perf" af --split attn=1,ffn=2 --scatter --shape 7x16,1x16 --route-topk 4 \
        --baseline mpi --check $few

    # What all do in step has to be the same; files and the table's form are rank 0's.
    expect 0 1 "$perf" af $split --size 64 $few --csv --json "$directory/json" : \
        -n 1 "$perf" af $split --size 64 $few
    for other in '--size 128' '--size 64,64' '--iters 61' '--check' '--no-floor' '-d 2' '--scatter' \
        "--trace $directory/trace"; do
        expect 2 1 "$perf" af $split --size 64 $few : -n 1 "$perf" af $split --size 64 $few $other
        says 'rank 1 was given other options than rank 0$'
    done
    expect 2 1 "$perf" af $split --size 64 $few : -n 1 "$perf" push $split --size 64 $few
    says 'rank 1 was given other options than rank 0$'

    # Whoever cannot read its own, one rank says why.
    expect 2 1 "$perf" af $split --size 64 $few : -n 1 "$perf" af $split --size 0 $few
    says "rank 1: '0' is not a list of sizes"
    expect 2 1 "$perf" af $split --size 64 $few : -n 1 "$perf" af $split --fast
    says 'rank 1: --fast: unknown'
    expect 2 2 "$perf" af $split --size 0
    says "'0' is not a list of sizes"
    expect 2 2 "$perf" af $split --fast
    says '--fast: unknown'
}
expect 0 2 "$perf" --hel
[ "$(grep -c '^Usage:' "$directory/out")" -eq 1 ] || fail "not one rank's help"
exit $failed
