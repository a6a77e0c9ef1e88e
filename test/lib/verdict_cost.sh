#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What verdicts cost an operation in instructions, at an attention and at an FFN rank, counted by callgrind: with
# STEPAF_VERDICT=on and off. Of some blocks of operations the cheapest counts; in none of them one is late, or picked
# to learn from, as happens every 5 ms. Fails if it is more than 10 ns can be.
set -u
: "${top_builddir:=.}"
program=$top_builddir/test/unit/verdict/verdict_cost
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
if ! command -v valgrind >/dev/null; then
    echo "skipped: valgrind is not installed"
    exit 77
fi
# What is not optimized takes more.
judged=0
grep -q '^CFLAGS = .*-O[23]' "$top_builddir/Makefile" && judged=1
if ! timeout -k 10 120 valgrind --tool=callgrind --callgrind-out-file="$directory/counts" \
    --toggle-collect='counted_*' --dump-after=counts_end \
    "$program" >"$directory/labels" 2>"$directory/log"; then
    cat "$directory/log"
    exit 1
fi

# The n-th dump is of the n-th line.
n=0
while read -r role setting operations; do
    n=$((n + 1))
    total=$(sed -n 's/^summary: //p' "$directory/counts.$n" | head -n 1)
    echo "$role $setting $operations $total"
done <"$directory/labels" >"$directory/table"
# 3 instructions a cycle at 3 GHz would be 9 a nanosecond. What it takes, verdict_cost --time says.
awk -v judged=$judged '
    $3 > 0 {
        cost = $4 / $3
        key = $1 " " $2
        if (!(key in least) || cost < least[key])
            least[key] = cost
    }
    END {
        for (i = 1; i <= 2; i++) {
            role = i == 1 ? "attention" : "FFN"
            off = least[role " off"]
            more = least[role " on"] - off
            printf "%s: %.0f instructions an operation without verdicts, %.0f more with them\n",
                role, off, more
            # An FFN rank only notes polls in vain, a few of them.
            if (off <= 0 || (i == 1 && more <= 0) || (judged && more > 60)) {
                print "FAILED: more than 60, or nothing was counted"
                failed = 1
            }
        }
        exit failed
    }' "$directory/table"
