#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No public header begins with more than 25 lines of prose: what takes more is a manual page.
set -u
: "${top_srcdir:=.}"
checked=0
failed=0
for header in "$top_srcdir"/include/stepaf/*.h "$top_srcdir"/include/stepaf/version.h.in; do
    [ "$header" = "$top_srcdir/include/stepaf/version.h" ] && continue # made from version.h.in
    # The lines before the first directive, the licence's apart.
    lines=$(awk '/^#/ { exit } !/SPDX/ { n++ } END { print n + 0 }' "$header")
    checked=$((checked + 1))
    if [ "$lines" -lt 1 ] || [ "$lines" -gt 25 ]; then
        echo "$header begins with $lines lines of prose, which are to be 1 to 25"
        failed=1
    fi
done
echo "$checked headers"
[ "$checked" -gt 15 ] && exit $failed
