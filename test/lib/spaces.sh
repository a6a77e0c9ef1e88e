#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Paths with spaces, which libtool does not take: configure says so at once, of the build's as of the sources'.
set -u
: "${top_srcdir:=.}"
[ -f "$top_srcdir/configure" ] || { echo "skipped: there is no configure"; exit 77; }
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
mkdir "$directory/b b" "$directory/b"
ln -s "$(cd "$top_srcdir" && pwd)" "$directory/sources"
ln -s "$(cd "$top_srcdir" && pwd)" "$directory/s s"
failed=0

# refuses DIRECTORY CONFIGURE WHAT: the sentence, before anything else has been checked for.
refuses()
{
    said=$(cd "$1" && sh "$2" 2>&1)
    status=$?
    if [ $status -eq 0 ] || ! echo "$said" | grep -q "libtool does not take paths with spaces: .*$3"; then
        echo "FAILED: $2 in $1: exit code $status, and"
        echo "$said" | tail -n 5
        failed=1
    fi
}

refuses "$directory/b b" ../sources/configure "b b"
refuses "$directory/b" "../s s/configure" "s s"
refuses "$directory/b" "$directory/s s/configure" "s s"
[ "$(ls "$directory/b b" "$directory/b" | grep -v 'config.log\|configure.lineno\|:$\|^$')" = "" ] || { echo "FAILED: files are left"; failed=1; }
exit $failed
