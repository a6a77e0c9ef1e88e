#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: how fast RDMA is, in one boot side by side with plain verbs in the same processes and
# with perftest's programs: bench.sh BUILD [ROUNDS]
#
# BUILD is a build directory with stepaf_perf; ROUNDS, by default 5, is how often all take turns.
# The table has the best round of each, since the machine may have other work: of latencies the least
# median, of rates the most. Half round trips are of the same bytes both ways, from one end of rail r0
# to the other; bandwidths are of pushes, of all attention ranks together.
set -u
here=$(cd "$(dirname "$0")" && pwd)
perf=$(cd "$1" && pwd)/stepaf_perf
rounds=${2:-5}
lat_sizes=(8 64 256 1024 4096)
bw_sizes=(262144 1048576)
depth=2 # of the streams
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
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

# row LABEL SIZE OURS FLOOR IB
row()
{
    awk -v label="$1" -v size="$2" -v ours="$3" -v floor="$4" -v ib="$5" 'BEGIN {
        printf "%-6s %8d %10.2f %10.2f", label, size, ours, floor
        if (ib == "") printf "\n"
        else printf " %12.2f %8.2f %8.2f\n", ib, ratio(ours, floor), ratio(ours, ib) }
        function ratio(a, b) { return b > 0 ? a / b : 0 }'
}

half() { awk -v x="$(least "$@")" 'BEGIN { print x / 2 }'; }
megabytes() { awk -v x="$(most "$@")" 'BEGIN { print x * 1000 }'; }

report()
{
    local size ib name
    cat "$scratch/machine"
    echo "# Soft-RoCE over a veth pair; the best of $rounds rounds each"
    echo "# half round trip, us (p50)"
    printf '%-6s %8s %10s %10s %12s %8s %8s\n' '' bytes stepaf 'raw verbs' ib_write_lat '/ raw' '/ ib'
    for size in "${lat_sizes[@]}"; do
        row 1A1F "$size" "$(half lat "$size" p50_us)" "$(half lat "$size" floor.p50_us)" \
            "$(least ib_lat "$size" p50_us)"
    done
    echo "# bandwidth, 10^6 bytes/s, $depth messages in flight"
    printf '%-6s %8s %10s %10s %12s %8s %8s\n' '' bytes stepaf 'raw verbs' ib_write_bw '/ raw' '/ ib'
    for size in "${bw_sizes[@]}"; do
        # perftest's MB are 2^20
        ib=$(awk -v x="$(most ib_bw "$size" mb_per_s)" 'BEGIN { print x * 1.048576 }')
        for name in bw sum; do
            row "$([ $name = bw ] && echo 1A1F || echo 2A2F)" "$size" \
                "$(megabytes $name "$size" gb_per_s)" \
                "$(megabytes $name "$size" floor.gb_per_s)" "$ib"
        done
    done
    echo "# posts a second, 8 bytes both ways, 16 in flight"
    row 1A1F 8 "$(most rate 8 posts_per_s)" "$(most rate 8 floor.posts_per_s)" ''
}

for ((round = 0; round < rounds; round++)); do
    measure
done
report
