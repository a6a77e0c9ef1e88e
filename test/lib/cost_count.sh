# SPDX-License-Identifier: Apache-2.0
# Sourced by verbs_cost.sh and fabric_cost.sh: instructions of programs with cost_job.c, counted by callgrind. Makes
# $directory.
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT

cost_begin()
{
    if ! command -v valgrind >/dev/null; then
        echo "skipped: valgrind is not installed"
        exit 77
    fi
}

# cost_protected: sets protected, by which bounds are to be multiplied. Protectors of stacks and branches, which Ubuntu's gcc
# adds by itself, are no cost of the library: with gcc 13 they are 4 to 7 %.
cost_protected()
{
    cost_compiler=$(sed -n 's/^CC = //p' "$top_builddir/Makefile")
    cost_flags=$(sed -n 's/^CFLAGS = //p' "$top_builddir/Makefile")
    protected=1
    # shellcheck disable=SC2086
    if $cost_compiler $cost_flags -dM -E -x c /dev/null | grep -q '__SSP\|__CET__'; then
        echo "compiled with protectors of stacks or branches"
        protected=1.08
    fi
}

# cost_count METRICS TABLE PROGRAM [ARGUMENT...]: what the program prints, with the instructions behind each line: the
# least, where lines are alike. METRICS is what STEPAF_METRICS says, or that and other settings: "on STEPAF_VERDICT=on". The
# n-th dump is of the n-th line.
cost_count()
{
    cost_metrics=$1 cost_table=$2
    shift 2
    rm -f "$directory"/counts*
    # shellcheck disable=SC2086
    if ! env STEPAF_METRICS=$cost_metrics timeout -k 10 120 valgrind --tool=callgrind \
        --callgrind-out-file="$directory/counts" --toggle-collect='counted_*' --dump-after=counts_end \
        "$@" >"$directory/labels" 2>"$directory/log"; then
        cat "$directory/log"
        exit 1
    fi
    cost_n=0
    while read -r what ffn tensors bytes operations; do
        cost_n=$((cost_n + 1))
        total=$(sed -n 's/^summary: //p' "$directory/counts.$cost_n" | head -n 1)
        echo "$what $ffn $tensors $bytes $operations $total"
    done <"$directory/labels" | awk '
        {
            key = $1 " " $2 " " $3 " " $4 " " $5
            if (!(key in least))
                keys[++n] = key
            if (!(key in least) || $6 < least[key])
                least[key] = $6
        }
        END {
            for (i = 1; i <= n; i++)
                print keys[i], least[keys[i]]
        }' >"$cost_table"
}
