#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stepaf-accept, over a network card made of software: what it finds good, lost and bad, and the file that it leaves.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
. "$top_srcdir/test/mpi/env.sh"
skip() { echo "skipped: $1"; exit 77; }
fail() { echo "FAIL: $1"; sed 's/^/    /' "$directory/out"; exit 1; }
softnic=$(cd "$top_builddir/test/softnic" 2>/dev/null && pwd)/.libs/softnic.so
[ -f "$softnic" ] || skip "there is no test/softnic/softnic.la, which takes libibverbs"
[ -z "${SANITIZERS:-}" ] || skip "the card that is preloaded comes before the sanitizer's library"
[ -x "$top_builddir/stepaf_perf" ] || skip "stepaf_perf is not built"
command -v "$mpiexec" >/dev/null || skip "there is no $mpiexec"
case $mpiexec_flags in
--oversubscribe) flags="--oversubscribe --bind-to none" ;;
*) flags="-bind-to none" ;;
esac
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
STEPAF_ACCEPT_BIN=$top_builddir
export STEPAF_ACCEPT_BIN

# accept CODE ARGUMENT...
accept()
{
    code=$1
    shift
    rm -rf "$directory/files"
    # shellcheck disable=SC2086
    "$top_srcdir/tools/stepaf-accept" -o "$directory/files" "$@" -- "$mpiexec" $flags -n 2 \
        env SOFTNIC_DEVICES=2 LD_PRELOAD="$softnic" >"$directory/out" 2>&1
    is=$?
    [ $is -eq "$code" ] || fail "exit code $is instead of $code"
}
has() { grep -Eq "$1" "$directory/out" || fail "no line like: $1"; }

accept 0 --only "nodes nic_map rail_loss perftest" -r STEPAF_NET_DEVICES=softnic0,softnic1 -x SOFTNIC_DIES=0:100
has '^SKIP +nodes .*no network is tried'
has '^PASS +nic_map .*verbs;softnic0'
has '^SKIP +perftest .*emulated in software'
has '^PASS +rail_loss .* [1-9][0-9]* operations verified, 0 wrong bytes'
has '^2 passed, 0 failed, 2 skipped'
tar -tzf "$directory"/files/*.tar.gz >"$directory/list" || fail "the file cannot be read"
for name in table.txt nodes.log rail_loss.log environment.txt; do
    grep -q "/$name\$" "$directory/list" || fail "the file lacks $name"
done
tar -xOzf "$directory"/files/*.tar.gz --wildcards '*/rail_loss.log' | grep -q 'is given up' || fail "no rail was lost"

# What is not so is found: one rail instead of two, and a rail that is lost where there is no other.
accept 1 --only "rails rail_loss" -r STEPAF_NET_DEVICES=softnic0 -x SOFTNIC_DIES=0:100
has '^FAIL +rails .*not both ranks have two rails'
has '^FAIL +rail_loss .*lost'
accept 2 --everything
has "there is no option '--everything'"
for bad in "--only=verb" "--time=x" "--time=0" "--limit=abc" "--patience=zz"; do
    accept 2 "$bad"
done
has "is 'zz', which is no whole number"
echo "ok"
