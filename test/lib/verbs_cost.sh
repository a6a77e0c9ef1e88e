#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What RDMA costs in instructions, counted by callgrind on made-up devices: of starting an operation
# and waiting for it at 1 to 8 FFN ranks, and of receiving and answering it at each of them. Counted
# is each call of the library from its entry to its return, with everything that it calls but the
# device's own functions (ibv_post_send, ibv_post_recv, ibv_poll_cq), the trace switched on; the
# answers are there before the wait begins. Where the answers' receives are posted anew, requests
# signalled and the peer told of what was read, once in so many operations, that has its share.
# Fails if it is more than src/transport/verbs/README.md promises, or if STEPAF_METRICS=on adds more to it than 80
# instructions for each answer at the attention rank, and 50 at the FFN rank: 10 ns. "verbs_cost time" measures these.
set -u
: "${top_builddir:=.}"
. "${top_srcdir:=.}/test/lib/cost_count.sh"
program=$top_builddir/test/unit/transport/verbs/verbs_cost
# Also without valgrind: it checks numbers of work requests itself.
timeout -k 10 120 "$program" >"$directory/labels" || exit 1
cost_begin
# What is not optimized takes more.
judged=0
grep -q '^CFLAGS = .*-O[23]' "$top_builddir/Makefile" && judged=1
cost_count off "$directory/table" "$program"
cost_count on "$directory/measured" "$program"

# Bounds are those of gcc 12. gcc 14 makes up to 2 % more of the same code, and gets 3.
slack=1.03
compiler=$(sed -n 's/^CC = //p' "$top_builddir/Makefile")
case $($compiler --version | head -n 1)-$($compiler -dumpfullversion 2>/dev/null) in
*clang* | *-) ;;
*-[1-9].* | *-1[012].*) slack=1 ;;
esac
cost_protected
slack=$(awk "BEGIN { print $slack * $protected }")
awk -v judged=$judged -v slack="$slack" '
    BEGIN {
        # At most, for the first FFN rank and for each further one, of a tensor of 64 bytes each way:
        # what it is and a little, as compilers differ.
        split("start wait recv respond", names)
        first["start"] = 310; first["wait"] = 310; first["recv"] = 660; first["respond"] = 575
        further["start"] = 85; further["wait"] = 120
        for (i in first)
            first[i] *= slack
        for (i in further)
            further[i] *= slack
    }
    {
        step = $1 " " $3 " " $4
        cost = $6 / $5
        if ($1 == "recv" || $1 == "respond")
            cost /= $2
        of[step, $2] = cost
        if (!(($3 " " $4) in seen)) {
            seen[$3 " " $4] = 1
            cases[++n] = $3 " " $4
        }
    }
    END {
        printf "%-8s %-8s %8s %8s %8s %8s %13s\n", "tensors", "", "1 FFN", "2", "4", "8", "each further"
        for (c = 1; c <= n; c++)
            for (i = 1; i <= 4; i++) {
                step = names[i] " " cases[c]
                slope = (of[step, 8] - of[step, 1]) / 7
                split(cases[c], word)
                printf "%sx%-6s %-8s %8.0f %8.0f %8.0f %8.0f", word[1], word[2], names[i],
                    of[step, 1], of[step, 2], of[step, 4], of[step, 8]
                if (names[i] in further)
                    printf " %13.0f\n", slope
                else
                    printf "\n"
                if (judged && c == 1 && (of[step, 1] > first[names[i]] ||
                               (names[i] in further && slope > further[names[i]]))) {
                    print "FAILED: " names[i] " takes more than " first[names[i]] " instructions, " \
                        "or " further[names[i]] " for each further FFN rank"
                    failed = 1
                }
            }
        exit failed
    }' "$directory/table" || exit 1

# With one FFN rank: what is written ten times a second would count with many. The least of the cases: it may count all
# the same.
awk -v judged=$judged -v slack="$slack" '
    NR == FNR { off[$1, $2, $3, $4] = $6; next }
    $2 == 1 {
        cost = ($6 - off[$1, $2, $3, $4]) / $5
        if (!($1 in more) || cost < more[$1])
            more[$1] = cost
    }
    END {
        printf "metrics add: start %.0f, wait %.0f, recv %.0f, respond %.0f\n", more["start"], more["wait"],
            more["recv"], more["respond"]
        if (judged && (more["start"] + more["wait"] > 80 * slack || more["recv"] + more["respond"] > 50 * slack)) {
            print "FAILED: metrics add too much"
            exit 1
        }
    }' "$directory/table" "$directory/measured"
