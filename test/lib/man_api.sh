#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The manual pages of the public functions are what the headers' comments say. "man_api.sh update"
# makes them so.
set -u
: "${top_srcdir:=.}"
made=$(mktemp) || exit 99
trap 'rm -f "$made"' EXIT
failed=0
pages=0

for header in "$top_srcdir"/include/stepaf/*.h "$top_srcdir"/include/stepaf/version.h.in; do
    name=$(basename "${header%.in}" .h)
    # The umbrella declares nothing; version.h is made from version.h.in.
    case $header in
    */stepaf.h | */version.h) continue ;;
    esac
    page=$top_srcdir/man/stepaf_$name.3
    awk -f "$top_srcdir/man/man3.awk" "$header" >"$made" || exit 1
    pages=$((pages + 1))
    diff "$page" "$made" && continue
    if [ "${1:-}" = update ]; then
        cat "$made" >"$page"
    else
        failed=1
    fi
done

[ $failed -eq 0 ] || echo "make them anew: sh test/lib/man_api.sh update"

# No function is left out: each that a version map lists has its own heading.
for function in $(sed -n 's/^ *\(stepaf_[a-z0-9_]*\);$/\1/p' "$top_srcdir/src/libstepaf.map" \
    "$top_srcdir"/mpi_launch/*.map); do
    grep -qx "\.SS $function" "$top_srcdir"/man/stepaf_*.3 && continue
    echo "$function has no manual page"
    failed=1
done
echo "$pages pages"
[ "$pages" -gt 0 ] && exit $failed
