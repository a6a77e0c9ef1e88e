#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/delay.sh: packets are held back for as long as is said, both ways, ours and those of plain sockets, and the
# line says what went over it.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
[ -x "$top_builddir/bench/delay/line" ] || { echo "skipped: built without stepaf_perf"; exit 77; }
said=$(mktemp) && lines=$(mktemp) || exit 99
trap 'rm -f "$said" "$lines"' EXIT
bash "$top_srcdir/bench/delay.sh" -b "$top_builddir" -d 20 -c 1 -s 4K -i 16 -l >"$said" 2>"$lines"
status=$?
cat "$said" "$lines"
[ $status -eq 0 ] || exit $status
# One row: neither an operation nor 16 in flight take less than a round trip of 40 ms.
awk -F'|' '
    /4,096/ {
        rows++
        bad += $5 > 16 * 4096 / 1e9 / 0.040 || $6 > 16 * 4096 / 1e9 / 0.040 || $8 < 40 || $9 < 40
    }
    END { exit bad || rows != 1 }' "$said" || { echo "these are no times of such a line"; exit 1; }
[ "$(grep -c "^20 ms: h[12] to h[12]: [1-9][0-9]* packets" "$lines")" -eq 2 ] ||
    { echo "the lines do not say what went over them"; exit 1; }
