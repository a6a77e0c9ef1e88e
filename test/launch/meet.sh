#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Jobs that nobody but a shell starts: ranks meet over TCP, by settings and by what torchrun sets, whoever
# comes first; rank 0, where they met, may die afterwards. TEST_MEET_RANKS="2 16 64": jobs of so many ranks, by the
# shell and by torchrun.
set -u
. "${top_srcdir:-.}/test/launch/common.sh"
[ -z "${SANITIZERS:-}" ] || { echo "skipped: many ranks, of which sanitizers make too much"; exit 77; }
rank=$(cd "$top_builddir" && pwd)/test/launch/tcp_rank
# Ports that systems take none of by themselves; other runs have others.
port=$((20000 + $$ % 10000))
for name in RANK WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID; do
    unset $name
done
export STEPAF_SECRET=known-to-all
# Many ranks on few cores.
export STEPAF_TIMEOUT_US=60000000

# job N COMMAND...: N ranks of it, the last one first, with their number in $number; $code is the worst.
job()
{
    n=$1
    shift
    pids=
    for number in $(seq $((n - 1)) -1 0); do
        export number
        timeout -k 10 120 "$@" >>"$directory/out" 2>>"$directory/err" </dev/null &
        pids="$pids $!"
    done
    code=0
    for pid in $pids; do
        wait "$pid" || code=$?
    done
}

# complete N: that is what all of them have said.
complete()
{
    [ "$code" -eq 0 ] || fail "exit code $code"
    [ "$(grep -c "^rank [0-9]* of $1: " "$directory/out")" -eq "$1" ] || fail "not $1 ranks"
    is err ''
    : >"$directory/out"
}

: >"$directory/out" >"$directory/err"
# shellcheck disable=SC2016
for n in ${TEST_MEET_RANKS:-2 16}; do
    export STEPAF_SPLIT=attn=$((n / 2)),ffn=$((n - n / 2)) STEPAF_SIZE=$n STEPAF_MEET=localhost:$port
    job $n sh -c 'STEPAF_RANK=$number exec "$0"' "$rank"
    complete $n
done

# Where the name is that of ::1 alone, as in containers without IPv4.
echo '::1 localhost' >"$directory/hosts"
there="unshare --mount"
[ "$(id -u)" -eq 0 ] || there="unshare --user --map-root-user --mount"
if $there mount --bind "$directory/hosts" /etc/hosts 2>/dev/null; then
    export STEPAF_SPLIT=attn=1,ffn=1 STEPAF_SIZE=2 STEPAF_MEET=localhost:$port
    # shellcheck disable=SC2016
    job 2 $there sh -c 'mount --bind "$1" /etc/hosts && STEPAF_RANK=$number exec "$0"' "$rank" "$directory/hosts"
    complete 2
else
    echo "localhost of ::1: not tried, no permission to mount"
fi
# Rank 0 may have fewer descriptors than there are ranks: all hear so, at once.
export STEPAF_SPLIT=attn=12,ffn=12 STEPAF_SIZE=24 STEPAF_MEET=localhost:$((port + 2))
began=$(date +%s)
# shellcheck disable=SC2016
job 24 sh -c '[ $number != 0 ] || ulimit -n 16; STEPAF_RANK=$number exec "$0"' "$rank"
[ "$code" -eq 1 ] || fail "exit code $code without descriptors"
[ $(($(date +%s) - began)) -le 20 ] || fail "descriptors were waited for"
[ "$(sed '/ WARN /d; s/; [0-9]* of 24 are here//' "$directory/err" | sort | uniq -c | sed 's/^ *//')" = "24 start: tcp bootstrap: \
localhost:$((port + 2)): rank 0 has too few file descriptors for the connections of all ranks (ulimit -n)" ] || {
    fail "not all know of the descriptors"
    sort "$directory/err" | uniq -c
}
: >"$directory/out" >"$directory/err"
unset STEPAF_MEET STEPAF_SIZE

# As torchrun does, whose own store listens at MASTER_PORT.
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 1)) WORLD_SIZE=3 STEPAF_SPLIT=attn=2,ffn=1
# shellcheck disable=SC2016
job 3 sh -c 'RANK=$number exec "$0"' "$rank"
complete 3
# shellcheck disable=SC2016
job 3 sh -c 'RANK=$number exec "$0" outlive' "$rank"
[ "$code" -eq 137 ] || fail "rank 0 was not killed: $code"
[ "$(sort "$directory/out")" = "rank 1 of 3: attention
rank 2 of 3: ffn" ] || fail "ranks have not outlived the meeting point"

# torchrun itself, where it is.
if command -v torchrun >/dev/null && torchrun --help >/dev/null 2>&1; then
    unset MASTER_ADDR MASTER_PORT WORLD_SIZE
    for n in ${TEST_MEET_RANKS:-3}; do
        STEPAF_SPLIT=attn=$((n - n / 2)),ffn=$((n / 2)) timeout -k 10 240 torchrun --standalone \
            --nproc-per-node "$n" --no-python "$rank" >"$directory/out" 2>"$directory/err" </dev/null
        code=$?
        : >"$directory/err"
        complete "$n"
        [ "$failed" -ne 0 ] || echo "torchrun: $n ranks"
    done
else
    echo "torchrun: not installed, what it sets was tried"
fi
exit $failed
