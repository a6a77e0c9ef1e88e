#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# TCP beside Open MPI's TCP and plain sockets: tcp_table.sh [-b BUILD] [-w WHERE] [-c LIST] [-f SIZES] [-n FACTOR] [-r ROUNDS]
#
# One attention and one FFN rank exchange tensors of 8 bytes to 16 MiB both ways, by all contenders in turns.
# Prints Markdown: a row for each size, with p50 and p99 in microseconds. The floor is the best of four loops by
# plain sockets. Behind ours/MPI is what the ratio comes to, if there are rounds: lower or higher if the median of the
# rounds' own ratios is not 1 with 99 % confidence, by the rule of stepaf-report for rounds; same, if it may be; ? with
# fewer than 8 rounds. Of two that do not differ one row in 128 is called lower or higher with 8 rounds.
#
#   -b  the build directory, by default the current one
#   -w  lo (the default): over loopback. veth: between two network namespaces; it takes the right to make them
#   -c  numbers of connections, by default "1 2 3 4"; Open MPI has as many
#   -f  bytes, from and to, by default 8:16M
#   -n  so many times the usual number of operations, by default 1
#   -r  rounds, each with ranks and connections of its own, by default 1; figures are their medians
#   -d  with -w veth: delay packets by so many milliseconds each way, which takes netem
#
# TABLE_WRAP is a command that starts each rank, such as one that gives it a core.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top_srcdir=$(cd "$here/.." && pwd)
build=. where=lo connections="1 2 3 4" sizes=8:16M factor=1 delay= rounds=1
asked=("$@")
while getopts b:w:c:f:n:d:r: option; do
    case $option in
    b) build=$OPTARG ;;
    w) where=$OPTARG ;;
    c) connections=$OPTARG ;;
    f) sizes=$OPTARG ;;
    n) factor=$OPTARG ;;
    d) delay=$OPTARG ;;
    r) rounds=$OPTARG ;;
    *) sed -n '3,21s/^#\( \|$\)//p' "$0" >&2; exit 2 ;;
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

# part ROUND FROM TO ITERATIONS: rows of these sizes, if they are asked for.
part()
{
    local round=$1 from=$2 to=$3 iterations=$(($4 * factor))
    [ "$from" -ge "$least" ] || from=$least
    [ "$to" -le "$most" ] || to=$most
    [ "$from" -le "$to" ] || return 0
    ranks af --split attn=1,ffn=1 --transport tcp --baseline mpi --iters "$iterations" --warmup $((iterations / 5)) \
        --max-time $((2 * factor)) --size "$from:$to" --json "$scratch/$round.$from" >"$scratch/said" 2>&1 ||
        { cat "$scratch/said"; exit 1; }
}

# rows: of all rounds with so many connections; their verdicts go to a file.
rows()
{
    python3 - "$where" "$STEPAF_TCP_CONNECTIONS" "$here" "$scratch" <<'END'
import collections, glob, json, statistics, sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[3])
import rounds

where, connections, _, scratch = sys.argv[1:]
found = {}
for name in glob.glob(f"{scratch}/*.*"):
    for row in json.load(open(name)):
        found.setdefault(row["push_bytes"], []).append(row)


def times(rows, field):
    """Of ours, Open MPI and the floor, by round."""
    return [[who[field] for who in side] for side in (rows, [r["baseline"] for r in rows], [r["floor"] for r in rows])]


def ratios(times):
    return [a / b for a, b in zip(*times)]


for size, rows in sorted(found.items()):
    p50, p99 = times(rows, "p50_us"), times(rows, "p99_us")
    shown = [statistics.median(x) for pair in zip(p50, p99) for x in pair]
    words = [where, connections, f"{size:,}"] + [f"{x:.4g}" if x < 1000 else f"{x:.0f}" for x in shown]
    for field in (p50, p99):
        beside = ratios(field[:2])
        words += [f"{statistics.median(beside):.2f}", rounds.verdict(beside, "lower", "higher")]
        with open(f"{scratch}/verdicts", "a") as file:
            print(words[-1], "p50" if field is p50 else "p99", file=file)
    words.append(f"{statistics.median(ratios([p50[0], p50[2]])):.2f}")
    loops = collections.Counter(row["floor"].get("wait", "") for row in rows)
    print("|", " | ".join(words + [loops.most_common(1)[0][0]]), "|")
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
echo "| over | connections | bytes | ours p50 | p99 | MPI p50 | p99 | floor p50 | p99 | ours/MPI p50 | is | p99 | is | ours/floor | floor's loop |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
for n in $connections; do
    export STEPAF_TCP_CONNECTIONS=$n OMPI_MCA_btl_tcp_links=$n
    for round in $(seq "$rounds"); do
        part "$round" 8 65536 3000
        part "$round" 131072 1048576 600
        part "$round" 2097152 16777216 60
    done
    rows || exit
    rm -f "$scratch"/*.*
done
echo
for field in p50 p99; do
    python3 - "$here" "$field" "$scratch/verdicts" <<'END'
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import rounds

verdicts = [line.split()[0] for line in open(sys.argv[3]) if line.split()[1] == sys.argv[2]]
print(f"Of {len(verdicts)} ratios of {sys.argv[2]}: {rounds.count(verdicts)}")
END
done
