#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# libfabric or UCX beside the fabric's own floor, Open MPI over the same fabric, and the fabric's own programs:
# fabric_table.sh [-b BUILD] [-d DEPTH] [-l SIZES] [-w SIZES] [-n FACTOR] [-r ROUNDS] ofi PROVIDER | ucx TLS
#
# One attention and one FFN rank on this host. Prints Markdown. First half round trips of as many bytes both ways, in
# microseconds: ours, the floor (plain writes of libfabric's, plain active messages of UCX's) and Open MPI in turns, in
# the same processes; and what fi_pingpong or ucx_perftest says right behind them. Then bandwidth of pushes, a few in
# flight, in 10^9 bytes/s, beside the floor and Open MPI in turns, and beside fi_rma_bw (of fabtests, which Debian does not
# have) or ucx_perftest with as many in flight. Ratios are medians of each round's. Least times are there since a machine
# with other work spoils the others. A program that is not installed has "-".
#
#   -b  the build directory, by default the current one
#   -d  pushes in flight where bandwidth is measured, by default 2
#   -l  bytes of round trips, by default 8,64,512,4096,65536; "": none
#   -w  bytes of bandwidth, by default 1M,4M; "": none
#   -n  so many times the usual number of operations, by default 1
#   -r  rounds, each with ranks of its own, by default 5
#
# Not under a real-time policy: ranks of MPI that wait would not let mpirun go on.
#
# Such as: fabric_table.sh ofi shm; fabric_table.sh ofi 'tcp;ofi_rxm'; fabric_table.sh ucx posix,cma
set -u
here=$(cd "$(dirname "$0")" && pwd)
top_srcdir=$(cd "$here/.." && pwd)
build=. depth=2 lat_sizes=8,64,512,4096,65536 bw_sizes=1M,4M factor=1 rounds=5 port=19700
while getopts b:d:l:w:n:r: option; do
    case $option in
    b) build=$OPTARG ;;
    d) depth=$OPTARG ;;
    l) lat_sizes=$OPTARG ;;
    w) bw_sizes=$OPTARG ;;
    n) factor=$OPTARG ;;
    r) rounds=$OPTARG ;;
    *) sed -n '3,22s/^#\( \|$\)//p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
case ${1:-} in
ofi | ucx) [ $# -eq 2 ] ;;
*) false ;;
esac || { sed -n '3,22s/^#\( \|$\)//p' "$0" >&2; exit 2; }
kind=$1 way=$2
perf=$(cd "$build" && pwd)/stepaf_perf
[ -x "$perf" ] || { echo "$build has no stepaf_perf" >&2; exit 2; }
# shellcheck source=SCRIPTDIR/../test/mpi/env.sh
. "$top_srcdir/test/mpi/env.sh"
scratch=$(mktemp -d) || exit
trap 'rm -rf "$scratch"' EXIT

# Open MPI takes neither for a fast network unless it is told to.
if [ "$kind" = ucx ]; then
    export UCX_TLS=$way,self OMPI_MCA_pml=ucx OMPI_MCA_osc=pt2pt
    export OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any
    export OMPI_MCA_opal_common_ucx_tls=any OMPI_MCA_opal_common_ucx_devices=any
else
    export STEPAF_OFI_PROVIDER=$way OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi OMPI_MCA_mtl_ofi_provider_include=${way%%;*}
    export OMPI_MCA_osc=pt2pt OMPI_MCA_btl=self
fi

# bytes WORD: 64K as a number.
bytes()
{
    case $1 in
    *K) echo $((${1%K} << 10)) ;;
    *M) echo $((${1%M} << 20)) ;;
    *) echo "$1" ;;
    esac
}

# wait_for_listener: of $port. Memory has none.
wait_for_listener()
{
    for _ in $(seq 100); do
        grep -q ":$(printf %04X "$port") 0*:0000 0A " /proc/net/tcp /proc/net/tcp6 && break
        sleep 0.1
    done
}

# theirs PATTERN COLUMN SERVER...: start it twice, the second time as the client; the column of the last line like that.
# fi_rma_bw meets by the fabric's own addresses, the others over TCP.
theirs()
{
    local pattern=$1 column=$2 server listens calls
    shift 2
    command -v "$1" >/dev/null || return 0
    port=$((port + 1))
    case $1-$way in
    ucx_perftest-*) listens="-p $port" calls="-p $port 127.0.0.1" ;;
    fi_rma_bw-shm) listens="-s table-$port" calls="-s table-$port-client table-$port" ;;
    fi_rma_bw-*) listens="-s 127.0.0.1 -B $port" calls="-P $port 127.0.0.1" ;;
    *) listens="-B $port" calls="-P $port 127.0.0.1" ;;
    esac
    # shellcheck disable=SC2086
    timeout -k 5 100 "$@" $listens >"$scratch/server" 2>&1 &
    server=$!
    case $listens in
    *"table-$port") sleep 1 ;;
    *) wait_for_listener ;;
    esac
    # shellcheck disable=SC2086
    timeout -k 5 100 "$@" $calls >"$scratch/client" 2>&1
    wait $server
    awk -v pattern="$pattern" -v column="$column" '$0 ~ pattern { x = $column } END { print x }' "$scratch/client"
}

# their_lat BYTES, their_bw BYTES: half a round trip in us, 10^6 bytes/s.
their_lat()
{
    if [ "$kind" = ucx ]; then
        theirs '^Final:' 3 ucx_perftest -t ucp_am_lat -s "$1" -n $((2000 * factor)) -w 200
    else
        theirs '^[0-9]' 7 fi_pingpong -e rdm -p "$way" -S "$1" -I $((2000 * factor))
    fi
}
their_bw()
{
    local n=$((200 * factor))
    [ "$1" -le $((4 << 20)) ] || n=$((50 * factor))
    if [ "$kind" = ucx ]; then # which means 2^20 bytes by MB
        theirs '^Final:' 7 ucx_perftest -t ucp_am_bw -s "$1" -n $n -w 20 -O "$depth" |
            awk 'NF { print $1 * 1.048576 }'
    else
        theirs '^[0-9]' 5 fi_rma_bw -e rdm -o writedata -p "$way" -S "$1" -I $n -W "$depth"
    fi
}

# measure NAME COMMAND...: its rows go to NAME.ROUND.
measure()
{
    local name=$1
    shift
    "$@" --split attn=1,ffn=1 --transport "$kind" --json "$scratch/$name.$round" >"$scratch/said" 2>&1 || {
        cat "$scratch/said" >&2
        exit 1
    }
}

# With MPI, if it can be had this way.
ranks_of_mpi() { TEST_TIMEOUT_S=600 mpi_run 2 --bind-to none "$perf" "$@" --baseline mpi; }
ranks_alone() { timeout -k 5 600 "$perf" "$@" --procs 2; }
start=ranks_of_mpi
round=0
ranks_of_mpi af --split attn=1,ffn=1 --transport "$kind" --size 8 --iters 10 --warmup 2 --rounds 1 \
    >"$scratch/said" 2>&1 || start=ranks_alone

for round in $(seq "$rounds"); do
    if [ -n "$lat_sizes" ]; then
        measure lat "$start" af --size "$lat_sizes" --iters $((2000 * factor)) --warmup 200 --max-time "$factor"
        for size in ${lat_sizes//,/ }; do
            echo "$(bytes "$size") $(their_lat "$(bytes "$size")")" >>"$scratch/their_lat"
        done
    fi
    if [ -n "$bw_sizes" ]; then
        measure bw "$start" bw --size "$bw_sizes" -d "$depth" --iters $((400 * factor)) --warmup 40 --max-time $((2 * factor))
        for size in ${bw_sizes//,/ }; do
            echo "$(bytes "$size") $(their_bw "$(bytes "$size")")" >>"$scratch/their_bw"
        done
    fi
done

echo "\`bench/fabric_table.sh $kind '$way'\`, $rounds rounds, load average $(cut -d ' ' -f 1-3 /proc/loadavg), $(nproc) processors"
echo
python3 - "$scratch" "$kind" "$depth" <<'END'
import glob, json, os, statistics, sys

scratch, kind, depth = sys.argv[1:]
median = statistics.median


def rows(name):
    found = {}
    for file in sorted(glob.glob(f"{scratch}/{name}.*")):
        for row in json.load(open(file)):
            found.setdefault(row["push_bytes"], []).append(row)
    return sorted(found.items())


def theirs(name):
    found = {}
    if os.path.exists(f"{scratch}/{name}"):
        for line in open(f"{scratch}/{name}"):
            words = line.split()
            if len(words) == 2:
                found.setdefault(int(words[0]), []).append(float(words[1]))
    return found


def of(rows, who, field):
    return [row[who][field] if who else row[field] for row in rows if not who or row.get(who)]


def number(x):
    return "-" if x is None else f"{x:.4g}" if x < 1000 else f"{x:.0f}"


def ratio(ours, other):
    return "-" if len(ours) != len(other) else f"{median(a / b for a, b in zip(ours, other)):.2f}"


def table(head, lines):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for line in lines:
        print("| " + " | ".join(line) + " |")
    print()


tool = "fi_pingpong mean" if kind == "ofi" else "ucx_perftest p50"
peers, lines = theirs("their_lat"), []
for size, found in rows("lat"):
    line = [f"{size:,}"]
    for who in ("", "floor", "baseline"):
        for field in ("min_us", "p50_us", "p99_us"):
            values = of(found, who, field)
            line.append(number(median(values) if values else None))
    line.append(number(median(peers[size]) if peers.get(size) else None))
    for field in ("min_us", "p50_us", "p99_us"):
        line.append(ratio(of(found, "", field), of(found, "floor", field)))
    line.append(ratio(of(found, "", "min_us"), of(found, "baseline", "min_us")))
    line.append(ratio(of(found, "", "p50_us"), of(found, "baseline", "p50_us")))
    lines.append(line)
if lines:
    table(["bytes", "ours least", "p50", "p99", "floor least", "p50", "p99", "MPI least", "p50", "p99", tool,
           "ours/floor least", "p50", "p99", "ours/MPI least", "p50"], lines)

tool = "fi_rma_bw" if kind == "ofi" else "ucx_perftest"
peers, lines = theirs("their_bw"), []
for size, found in rows("bw"):
    ours, floor, mpi = (of(found, who, "gb_per_s") for who in ("", "floor", "baseline"))
    their = [x / 1000 for x in peers.get(size, [])]
    lines.append([f"{size:,}"] + [number(median(x) if x else None) for x in (ours, floor, mpi, their)] +
                 [ratio(ours, x) for x in (floor, mpi, their)] +
                 [ratio(of(found, who, field), of(found, "", field)) for who in ("floor", "baseline")
                  for field in ("min_us", "p50_us")])
if lines:
    print(f"Pushes in flight: {depth}. Above 1: ours is faster.\n")
    table(["bytes", "ours", "floor", "MPI", tool, "ours/floor", "ours/MPI", "ours/" + tool, "floor/ours of least times", "of p50",
           "MPI/ours of least times", "of p50"], lines)
END
