#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test/run says what it can do, without doing it, and takes no word that it does not know.
set -u
run=${top_srcdir:-.}/test/run
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0

fail()
{
    echo "FAILED: $*"
    failed=1
}

for option in -h --help; do
    "$run" -o "$directory/none" $option >"$directory/out" 2>"$directory/err" || fail "$option: exit code $?"
    [ ! -s "$directory/err" ] || fail "$option: $(cat "$directory/err")"
    # shellcheck disable=SC2013
    for word in $(sed -n 's/^\(all\|others\)="\(.*\)"$/\2/p' "$run"); do
        grep -q "^  $word " "$directory/out" || fail "$option does not know $word"
    done
done
for bad in nonsense "check nonsense" -x; do
    # shellcheck disable=SC2086
    "$run" -o "$directory/none" $bad >"$directory/out" 2>"$directory/err"
    code=$?
    [ $code -eq 2 ] || fail "$bad: exit code $code instead of 2"
    grep -q '^  check ' "$directory/err" || fail "$bad: it does not say what it takes"
done
[ ! -e "$directory/none" ] || fail "it has made a directory"
exit $failed
