#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# TCP beside Open MPI's TCP and plain sockets: tcp_table.sh [-b BUILD] [-w WHERE] [-c LIST] [-f LIST] [-n FACTOR]
#
# One attention and one FFN rank exchange tensors of 8 bytes to 16 MiB both ways, by all contenders in turns.
# Prints Markdown: a row for each size, with p50 and p99 in microseconds. The floor is the best of four loops by
# plain sockets.
#
#   -b  the build directory, by default the current one
#   -w  lo (the default): over loopback. veth: between two network namespaces; it takes the right to make them
#   -c  numbers of connections, by default "1 2 3 4"; Open MPI has as many
#   -f  bytes, from and to, by default 8:16M
#   -n  so many times the usual number of operations, by default 1
#   -d  with -w veth: delay packets by so many milliseconds each way, which takes netem
#
# TABLE_WRAP is a command that starts each rank, such as one that gives it a core.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top_srcdir=$(cd "$here/.." && pwd)
build=. where=lo connections="1 2 3 4" sizes=8:16M factor=1 delay=
asked=("$@")
while getopts b:w:c:f:n:d: option; do
    case $option in
    b) build=$OPTARG ;;
    w) where=$OPTARG ;;
    c) connections=$OPTARG ;;
    f) sizes=$OPTARG ;;
    n) factor=$OPTARG ;;
    d) delay=$OPTARG ;;
    *) sed -n '3,17s/^#\( \|$\)//p' "$0" >&2; exit 2 ;;
    esac
done
perf=$(cd "$build" && pwd)/stepaf_perf
[ -x "$perf" ] || { echo "$build has no stepaf_perf" >&2; exit 2; }
# shellcheck source=SCRIPTDIR/../test/mpi/env.sh
. "$top_srcdir/test/mpi/env.sh"
# shellcheck source=SCRIPTDIR/../test/hosts/hosts.sh
. "$top_srcdir/test/hosts/hosts.sh"
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self

if [ "$where" = veth ]; then
    hosts_enter "${asked[@]}"
    hosts_need_mpirun
    hosts_up 2 || exit
    for host in ${delay:+h1 h2}; do
        tc -n "$host" qdisc add dev eth0 root netem delay "${delay}ms" limit 100000 || exit
    done
fi
scratch=$(mktemp -d) || exit
trap 'rm -rf "$scratch"' EXIT

# ranks ARGUMENT...: both of them.
ranks()
{
    # shellcheck disable=SC2086
    if [ "$where" = veth ]; then
        TEST_TIMEOUT_S=600 hosts_mpirun h1:1,h2:1 --bind-to none -n 2 ${TABLE_WRAP:-} "$perf" "$@"
    else
        TEST_TIMEOUT_S=600 mpi_run 2 --bind-to none ${TABLE_WRAP:-} "$perf" "$@"
    fi
}

# part FROM TO ITERATIONS: rows of these sizes, if they are asked for.
part()
{
    local from=$1 to=$2 iterations=$(($3 * factor))
    [ "$from" -ge "$least" ] || from=$least
    [ "$to" -le "$most" ] || to=$most
    [ "$from" -le "$to" ] || return 0
    ranks af --split attn=1,ffn=1 --transport tcp --baseline mpi --iters "$iterations" --warmup $((iterations / 5)) \
        --max-time $((2 * factor)) --size "$from:$to" --json "$scratch/json" >"$scratch/said" 2>&1 ||
        { cat "$scratch/said"; exit 1; }
    python3 - "$where" "$STEPAF_TCP_CONNECTIONS" "$scratch/json" <<'END'
import json, sys

where, connections, name = sys.argv[1:]
for row in json.load(open(name)):
    mpi, floor = row["baseline"], row["floor"]
    times = [x for who in (row, mpi, floor) for x in (who["p50_us"], who["p99_us"])]
    ratios = [row["p50_us"] / mpi["p50_us"], row["p99_us"] / mpi["p99_us"], row["p50_us"] / floor["p50_us"]]
    words = [where, connections, f"{row['push_bytes']:,}"]
    words += [f"{x:.4g}" if x < 1000 else f"{x:.0f}" for x in times] + [f"{x:.2f}" for x in ratios]
    print("|", " | ".join(words + [floor.get("wait", "")]), "|")
END
}

# bytes WORD: 64K as a number.
bytes()
{
    case $1 in
    *K) echo $((${1%K} << 10)) ;;
    *M) echo $((${1%M} << 20)) ;;
    *) echo "$1" ;;
    esac
}

least=$(bytes "${sizes%:*}")
most=$(bytes "${sizes#*:}")
echo "| over | connections | bytes | ours p50 | p99 | MPI p50 | p99 | floor p50 | p99 | ours/MPI p50 | p99 | ours/floor | floor's loop |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
for n in $connections; do
    export STEPAF_TCP_CONNECTIONS=$n OMPI_MCA_btl_tcp_links=$n
    part 8 65536 3000
    part 131072 1048576 600
    part 2097152 16777216 60
done
