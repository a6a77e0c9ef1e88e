#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Real jobs by the launcher of this machine: one program and two, with stepaf_perf, which checks
# every byte.
set -u
. "${top_srcdir:-.}/test/launch/common.sh"
. "$top_srcdir/test/mpi/env.sh"
perf=$(cd "$top_builddir" && pwd)/stepaf_perf
few="--size 64 --iters 1000 --rounds 2 --check"

# job ARGUMENT...: it succeeds, and no byte is wrong.
job()
{
    expect 0 "$run" "$@"
    has out '^ +64 +64 +[0-9]+ '
    awk '/#bytes/ { wrong = 0; for (i = 1; i <= NF; i++) if ($i == "wrong") wrong = i }
        $1 == 64 && (!wrong || $wrong != 0) { exit 1 }' "$directory/out" || fail "$*: wrong bytes"
}

# roles LIST: of the ranks in their order, as the job's table has them.
roles()
{
    is=$(awk '/^# +[0-9]+ [^ ]+ +(attention|ffn) / { printf "%s", substr($4, 1, 1) }' "$directory/out")
    [ "$is" = "$1" ] || fail "the roles are $is instead of $1"
}

# shellcheck disable=SC2086
{
    job -a 1 -f 1 "$perf" af $few
    roles af
    job -a 2 -f 2 --interleave "$perf" af $few
    roles afaf
    job -a 1 "$perf" af $few : -f 1 "$perf" af $few
    roles af
    job -f 2 "$perf" af $few : -a 1 "$perf" af $few
    roles ffa
    PATH=$(dirname "$perf"):$PATH job -a 1 -f 1 --bind numa stepaf_perf af $few
}

# Every rank's own environment, cores and exit code.
# shellcheck disable=SC2016
expect 0 "$run" -a 1 -f 1 --env 'A=b;c d' --env HOME sh -c 'echo "$STEPAF_SPLIT <$A> $HOME"'
[ "$(grep -c "^attn=1,ffn=1 <b;c d> $HOME\$" "$directory/out")" -eq 2 ] || fail "the environment"
# shellcheck disable=SC2016
expect 0 "$run" -a 2 -f 2 --oversubscribe --bind core --verbose sh -c 'echo "$STEPAF_SPLIT"'
[ "$(grep -c '^stepaf-run: .*, rank [0-3] of 4 there: cores ' "$directory/err")" -eq 4 ] ||
    fail "not four ranks of one node"
# A secret is in no command line, and in nothing that stepaf-run says of one.
for launcher in mpirun mpiexec.mpich; do
    launcher=$(command -v $launcher) || continue
    for option in --verbose --env=STEPAF_SECRET; do
        # shellcheck disable=SC2016
        STEPAF_SECRET='a secret' expect 0 "$run" -a 1 -f 1 --launcher "$launcher" --verbose $option --bind none \
            sh -c 'echo "has ${#STEPAF_SECRET}"; printf %s "$STEPAF_SECRET" | grep -slFf - /proc/[0-9]*/cmdline; true'
        is out 'has 8
has 8'
        lacks err 'a secret'
    done
done
STEPAF_DEPTH=33 expect 2 "$run" -a 1 -f 1 "$perf" af --size 64
expect 3 "$run" -a 1 -f 1 sh -c 'exit 3'
exit $failed
