#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stepaf_info: each option shows what it promises, bad input is refused, and what the library uses
# of memory is within its bounds.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
info=$top_builddir/stepaf_info
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0

fail()
{
    echo "FAILED: $*"
    cat "$directory/out" "$directory/err"
    failed=1
}

# expect CODE OPTION...: run it, with the variable $setting if there is one; the output is in the
# files out and err.
setting=
expect()
{
    code=$1
    shift
    env ${setting:+"$setting"} "$info" "$@" >"$directory/out" 2>"$directory/err"
    is=$?
    [ "$is" -eq "$code" ] || fail "$setting stepaf_info $*: exit code $is instead of $code"
}

# has PATTERN: the output has such a line. says PATTERN: the error output has.
has()
{
    grep -Eq -- "$1" "$directory/out" || fail "no line like: $1"
}
says()
{
    grep -Eq -- "$1" "$directory/err" || fail "no error like: $1"
}

for name in $(env | sed -n 's/^\(STEPAF_[A-Z_]*\)=.*/\1/p'); do
    unset "$name"
done
version=$(sed -n 's/^version=//p' "$top_srcdir/VERSION")

expect 0
has "^stepaf $version$"
has '^shm '
has '^cores to use '
expect 0 -v
has "^stepaf $version$"
expect 0 -c
has '^STEPAF_DEPTH += 1 +buffers, default$'
expect 0 -f
has '^STEPAF_DEPTH$'
has 'Takes 1\.\.32 buffers\. Default: 1\. Must be the same'
expect 0 -t
has '^shm +can'
expect 0 --topology
has '^Machine'
has 'PU '

setting=STEPAF_DEPTH=3
expect 0 -c
has '^STEPAF_DEPTH += 3 +buffers, from the environment$'
expect 0
has '^STEPAF_DEPTH += 3 '
setting=STEPAF_TRANSPORTS=none
expect 0 -t
has '^shm +not used'
setting=STEPAF_DEPTH=33
expect 1 -c
says 'STEPAF_DEPTH=33: out of range; it takes 1\.\.32'
expect 0 -f
setting=STEPAF_DEPHT=3
expect 0 -c
says 'STEPAF_DEPHT is not a setting'

setting=
expect 2 --nonsense
expect 2 surplus
expect 2 --memory --keys 0
says 'not a number from 1 to'
expect 2 --memory --attn 2x
if [ -w /dev/full ]; then
    "$info" -f >/dev/full 2>/dev/null && fail "a full disk goes unnoticed"
fi

# The bounds: 8 KiB a peer, 256 bytes a key and peer.
for job in '--attn 1 --ffn 1 --keys 1' '--attn 2 --ffn 2' '--attn 3 --ffn 1 --keys 20'; do
    # shellcheck disable=SC2086
    expect 0 --memory $job
    cat "$directory/out"
    awk '/^ *[0-9]+ (attention|ffn) +[0-9]/ {
             ranks++
             if ($3 == 0 || $6 == 0 || $6 > 8192 || $8 == 0 || $9 > 256)
                 bad = 1
         }
         END { exit bad || !ranks }' "$directory/out" || fail "too much memory: $job"
done
exit $failed
