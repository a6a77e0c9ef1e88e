#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How fast RDMA is on Soft-RoCE, in one boot side by side with plain verbs in the same processes and
# with perftest's programs: bench.sh BUILD [ROUNDS [FILE]]
#
# BUILD is a build directory with stepaf_perf; ROUNDS, by default 5, is how often all take turns.
# It starts a guest (test/vm/run), prints the tables, and writes them to FILE, by default
# bench/results/verbs-soft-roce.md. They have the best round of each, since the machine may have other
# work: of latencies the least median, of rates the most. Half round trips are of the same bytes both
# ways, from one end of rail r0 to the other; bandwidths are of pushes, of all attention ranks
# together.
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ] || [ ! -x "$1/stepaf_perf" ]; then
    sed -n '3,12s/^#\( \|$\)//p' "$0" >&2
    exit 2
fi
build=$(cd "$1" && pwd)
perf=$build/stepaf_perf
rounds=${2:-5}

load() { cut -d ' ' -f 1 /proc/loadavg; }

# outside FILE: have the guest do it, and keep what it has written.
outside()
{
    local file=$1 kept before
    kept=$(mktemp -d) || exit
    before=$(load)
    "$here/run" -t $((300 + 240 * rounds)) -k "$kept" -- "$here/bench.sh" "$build" "$rounds" || exit
    {
        cat "$kept/bench.md"
        printf '\nLoad of the host, which has %s cores: %s before, %s after.\n' "$(nproc)" "$before" "$(load)"
    } >"$file"
    rm -r "$kept"
    echo "written: $file"
}

if [ -z "${VM_JOB:-}" ]; then
    outside "${3:-$here/../../bench/results/verbs-soft-roce.md}"
    exit
fi
lat_sizes=(8 64 256 1024 4096)
bw_sizes=(262144 1048576 4194304)
depth=2 # of the streams
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# A host that has other work too lets nothing through for seconds.
export STEPAF_VERBS_PEER_TIMEOUT_US=30000000
export VM_RAILS=r0 STEPAF_TRANSPORTS=verbs OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=vader,self OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
if [ ! -e /sys/class/infiniband/r0a ]; then
    echo "the kernel $(uname -r) has no module rdma_rxe"
    exit 77
fi

comma() { (IFS=, && echo "$*"); }

# stepaf NAME RANKS ARGUMENT...: run stepaf_perf, and add its numbers to the file NAME: lines of
# size, name ("floor." before those of the floor), number.
stepaf()
{
    local name=$1 ranks=$2
    shift 2
    if ! timeout -k 5 300 mpirun --oversubscribe -n "$ranks" "$here/ends.sh" "$perf" "$@" \
        --json "$scratch/json" >"$scratch/out" 2>"$scratch/err"; then
        # On an overloaded machine an emulated one may lose so many packets that a peer is given up.
        echo "this round has no $name:" && cat "$scratch/err"
        return
    fi
    awk -F '[" :,]+' '
        $2 == "push_bytes" { size = $3 }
        $2 == "floor" { of = "floor." }
        /^ *}/ { of = "" }
        NF > 2 { print size, of $2, $3 }' "$scratch/json" >>"$scratch/$name"
    grep -E '^# (stepaf_perf|machine|clock)' "$scratch/out" >"$scratch/machine"
}

# gid DEVICE: its first RoCE v2 address over IPv4
gid()
{
    local port=/sys/class/infiniband/$1/ports/1 file
    for file in "$port"/gids/*; do
        case $(cat "$file" 2>/dev/null) in
        0000:0000:0000:0000:0000:ffff:*) echo "${file##*/}" && return ;;
        esac
    done
}

# perftest PROGRAM COLUMN SIZE ARGUMENT...: one number of its table
perftest()
{
    local program=$1 column=$2 size=$3 server
    shift 3
    "$program" -F -d r0b -x "$(gid r0b)" -s "$size" "$@" >"$scratch/server" 2>&1 &
    server=$!
    until ss -Hltn 'sport = :18515' | grep -q .; do
        kill -0 $server 2>/dev/null || break
        sleep 0.1
    done
    "$program" -F -d r0a -x "$(gid r0a)" -s "$size" "$@" localhost >"$scratch/client" 2>&1
    wait $server
    awk -v size="$size" -v column="$column" '$1 == size { print $column }' "$scratch/client"
}

# all FILE SIZE NAME: of all rounds
all() { awk -v size="$2" -v name="$3" '$1 == size && $2 == name { print $3 }' "$scratch/$1" | sort -g; }

least() { all "$@" | head -n 1; }
most() { all "$@" | tail -n 1; }

measure()
{
    local size
    for size in "${lat_sizes[@]}"; do
        echo "$size p50_us $(perftest ib_write_lat 5 "$size" -n 1000)" >>"$scratch/ib_lat"
    done
    stepaf lat 2 af --split attn=1,ffn=1 --size "$(comma "${lat_sizes[@]}")" -i 1000 -w 100 \
        --max-time 1
    for size in "${bw_sizes[@]}"; do
        echo "$size mb_per_s $(perftest ib_write_bw 4 "$size" -n $((20971520 / size)) -t $depth)" \
            >>"$scratch/ib_bw"
    done
    stepaf bw 2 bw --split attn=1,ffn=1 --size "$(comma "${bw_sizes[@]}")" -d $depth -w $depth \
        --max-time 1
    stepaf sum 4 bw --split attn=2,ffn=2,interleave --size "$(comma "${bw_sizes[@]}")" \
        -d 1 -w 1 --max-time 1
    stepaf rate 2 rate --split attn=1,ffn=1 -d 16 --max-time 1
}

# within RATIO LEAST MOST: in words.
within() { awk -v x="$1" -v least="$2" -v most="$3" 'BEGIN { print (x >= least && x <= most) ? "yes" : "no" }'; }

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", (b > 0 ? a / b : 0) }'; }
half() { awk -v x="$(least "$@")" 'BEGIN { printf "%.2f", x / 2 }'; }
# millions WORDS: of the most, which is in units of 10^9; mebi WORDS: which is in units of 2^20.
millions() { awk -v x="$(most "$@")" 'BEGIN { printf "%.1f", x * 1000 }'; }
mebi() { awk -v x="$(most "$@")" 'BEGIN { printf "%.1f", x * 1.048576 }'; }

report_latency()
{
    local size ours raw ib
    echo "## Half round trip, us, median"
    echo
    echo "| bytes | stepaf | raw verbs | ib_write_lat | / raw | <= 1.25 | / ib_write_lat | <= 1.3 |"
    echo "|---|---|---|---|---|---|---|---|"
    for size in "${lat_sizes[@]}"; do
        ours=$(half lat "$size" p50_us)
        raw=$(half lat "$size" floor.p50_us)
        ib=$(least ib_lat "$size" p50_us)
        set -- "$(ratio "$ours" "$raw")" "$(ratio "$ours" "$ib")"
        echo "| $size | $ours | $raw | $ib | $1 | $(within "$1" 0.01 1.25) | $2 | $(within "$2" 0.01 1.3) |"
    done
}

report_bandwidth()
{
    local size name ranks flying ours raw ib
    echo "## Bandwidth of pushes, 10^6 bytes/s, in sum"
    echo
    echo "| bytes | ranks | in flight of each | stepaf | raw verbs | ib_write_bw | / raw | / ib_write_bw | >= 0.95 |"
    echo "|---|---|---|---|---|---|---|---|---|"
    for size in "${bw_sizes[@]}"; do
        ib=$(mebi ib_bw "$size" mb_per_s) # perftest's MB are 2^20
        for name in bw sum; do
            [ $name = bw ] && ranks=1A1F flying=$depth || ranks=2A2F flying=1
            ours=$(millions $name "$size" gb_per_s)
            raw=$(millions $name "$size" floor.gb_per_s)
            set -- "$(ratio "$ours" "$raw")" "$(ratio "$ours" "$ib")"
            echo "| $size | $ranks | $flying | $ours | $raw | $ib | $1 | $2 | $(within "$2" 0.95 1000) |"
        done
    done
}

report()
{
    local ours raw
    echo "# RDMA on Soft-RoCE, $(date '+%-d %B %Y')"
    echo
    echo "\`test/vm/bench.sh\`, in the guest of \`test/vm\` ($(nproc) processors, Linux $(uname -r)): Soft-RoCE over"
    echo "a veth pair, the best of $rounds rounds each. Only the ratios count."
    echo
    echo '```'
    cat "$scratch/machine"
    echo '```'
    echo
    report_latency
    echo
    report_bandwidth
    echo
    echo "## Posts a second, 8 bytes both ways, 16 in flight"
    echo
    ours=$(most rate 8 posts_per_s)
    raw=$(most rate 8 floor.posts_per_s)
    echo "| stepaf | raw verbs | / raw |"
    echo "|---|---|---|"
    echo "| $ours | $raw | $(ratio "$ours" "$raw") |"
}

for ((round = 0; round < rounds; round++)); do
    measure
done
report | tee "$VM_JOB/bench.md"
