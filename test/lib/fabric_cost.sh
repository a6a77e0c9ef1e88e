#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What transports over fabrics of others cost in instructions, beside RDMA: of starting an operation and waiting for it,
# and of receiving and answering it, at one FFN rank, and what each further one adds. Counted as verbs_cost.sh does: what
# libfabric and UCX do themselves is not, what they call is. The programs fail by themselves where a start of n tensors
# is not n writes, rung for once, or n messages.
set -u
: "${top_builddir:=.}"
. "${top_srcdir:=.}/test/lib/cost_count.sh"
cost_begin
units=$top_builddir/test/unit/transport
: >"$directory/all"
# add NAME PROGRAM [ARGUMENT]
add()
{
    name=$1
    shift
    [ -x "$1" ] || return 0
    cost_count off "$directory/table" "$@"
    sed "s/^/$name /" "$directory/table" >>"$directory/all"
    names="${names:+$names }$name"
}
names=
add verbs "$units/verbs/verbs_cost" some
add ofi "$units/ofi/ofi_cost"
add ofi-32-bits "$units/ofi/ofi_cost" narrow
add ucx "$units/ucx/ucx_cost"
case $names in
"" | verbs)
    echo "skipped: this build has neither libfabric nor UCX"
    exit 77
    ;;
esac
# What is not optimized takes more.
judged=0
grep -q '^CFLAGS = .*-O[23]' "$top_builddir/Makefile" && judged=1
cost_protected
awk -v judged=$judged -v names="$names" -v slack="$protected" '
    BEGIN {
        # At most, for a start and the wait for it together, of a tensor of 64 bytes each way at one FFN rank, and for
        # each further one: what it is and a tenth, as compilers differ.
        first["ofi"] = 960; further["ofi"] = 485
        first["ofi-32-bits"] = 1435; further["ofi-32-bits"] = 945
        first["ucx"] = 905; further["ucx"] = 485
        for (i in first) {
            first[i] *= slack
            further[i] *= slack
        }
        n_names = split(names, name)
        split("start wait recv respond", step)
    }
    {
        cost = $7 / $6
        if ($2 == "recv" || $2 == "respond")
            cost /= $3
        of[$1, $2, $4 "x" $5, $3] = cost
        if (!(($4 "x" $5) in seen)) {
            seen[$4 "x" $5] = 1
            size[++n_sizes] = $4 "x" $5
        }
    }
    END {
        printf "%-8s %-8s", "tensors", ""
        for (i = 1; i <= n_names; i++)
            printf " %18s", name[i]
        printf "\n"
        for (s = 1; s <= n_sizes; s++)
            for (j = 1; j <= 4; j++) {
                printf "%-8s %-8s", size[s], step[j]
                for (i = 1; i <= n_names; i++) {
                    one = of[name[i], step[j], size[s], 1]
                    slope = (of[name[i], step[j], size[s], 4] - one) / 3
                    text = sprintf("%.0f", one)
                    if (step[j] == "start" || step[j] == "wait")
                        text = text sprintf(" + %.0f", slope)
                    printf " %18s", text
                }
                printf "\n"
            }
        for (i = 1; judged && i <= n_names; i++) {
            if (!(name[i] in first))
                continue
            one = of[name[i], "start", size[1], 1] + of[name[i], "wait", size[1], 1]
            four = of[name[i], "start", size[1], 4] + of[name[i], "wait", size[1], 4]
            if (one > first[name[i]] || (four - one) / 3 > further[name[i]]) {
                printf "FAILED: %s: start and wait take %.0f instructions, where %d are the bound; " \
                    "each further FFN rank %.0f, where %d are\n", name[i], one, first[name[i]], \
                    (four - one) / 3, further[name[i]]
                failed = 1
            }
        }
        exit failed
    }' "$directory/all"
