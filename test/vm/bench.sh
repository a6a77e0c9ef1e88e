#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How fast RDMA is on Soft-RoCE, in one boot side by side with plain verbs in the same processes and
# with perftest's programs: bench.sh BUILD [ROUNDS [FILE]]
#
# BUILD is a build directory with stepaf_perf; ROUNDS, by default 5, is how often all take turns.
# It starts a guest (test/vm/run), prints the tables, and writes them to FILE, by default
# BUILD/verbs-soft-roce.md. The machine may have other work, and its speed changes by the minute:
# numbers are the median of all rounds, ratios the median of each round's ratio, of what ran one
# after the other. Half round trips are of the same bytes both ways, from one end of rail r0 to the
# other; bandwidths are of pushes, of all attention ranks together. There the library's ranks sleep
# while they wait, as ib_write_bw's receiver does: who polls takes one of two processors from the
# devices, whose work the processors do.
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ] || [ ! -x "$1/stepaf_perf" ]; then
    sed -n '3,13s/^#\( \|$\)//p' "$0" >&2
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
    "$here/run" -t $((300 + 600 * rounds)) -k "$kept" -- "$here/bench.sh" "$build" "$rounds" || exit
    {
        cat "$kept/bench.md"
        printf '\nLoad of the host, which has %s cores: %s before, %s after.\n' "$(nproc)" "$before" "$(load)"
    } >"$file"
    rm -r "$kept"
    echo "written: $file"
}

if [ -z "${VM_JOB:-}" ]; then
    outside "${3:-$build/verbs-soft-roce.md}"
    exit
fi
lat_sizes=(8 64 256 1024 4096)
bw_sizes=(262144 1048576 4194304)
bw_times=3 # as many rounds of these
depth=2    # of the streams
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# A host that has other work too lets nothing through for seconds.
export STEPAF_VERBS_PEER_TIMEOUT_US=30000000
# So slow a device takes longer for a message of megabytes than the default after which it sends again.
timeout=20
export STEPAF_VERBS_TIMEOUT=$timeout
export VM_RAILS=r0 STEPAF_TRANSPORTS=verbs OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=vader,self OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
if [ ! -e /sys/class/infiniband/r0a ]; then
    echo "the kernel $(uname -r) has no module rdma_rxe"
    exit 77
fi

comma() { (IFS=, && echo "$*"); }

# stepaf NAME RANKS ARGUMENT...: run stepaf_perf, and add its numbers to the file NAME: lines of
# round, size, name ("floor." before those of the floor), number.
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
    awk -F '[" :,]+' -v round="$round" '
        $2 == "push_bytes" { size = $3 }
        $2 == "floor" { of = "floor." }
        /^ *}/ { of = "" }
        NF > 2 { print round, size, of $2, $3 }' "$scratch/json" >>"$scratch/$name"
    grep -E '^# (stepaf_perf|machine|clock)' "$scratch/out" >"$scratch/machine"
}

# asleep: the same, of ranks that sleep until a device wakes them.
asleep()
{
    STEPAF_VERBS_SLEEP=event STEPAF_SPIN_US=0 STEPAF_SLEEP_AFTER_US=0 stepaf "$@"
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
    "$program" -F -u $timeout -d r0b -x "$(gid r0b)" -s "$size" "$@" >"$scratch/server" 2>&1 &
    server=$!
    until ss -Hltn 'sport = :18515' | grep -q .; do
        kill -0 $server 2>/dev/null || break
        sleep 0.1
    done
    "$program" -F -u $timeout -d r0a -x "$(gid r0a)" -s "$size" "$@" localhost >"$scratch/client" 2>&1
    wait $server
    awk -v size="$size" -v column="$column" '$1 == size { print $column }' "$scratch/client"
}

# median: of the numbers that it is given, one a line
median() { sort -g | awk '{ x[NR] = $1 } END { if (NR) print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }

# middle FILE SIZE NAME: of all rounds
middle() { awk -v size="$2" -v name="$3" '$2 == size && $3 == name { print $4 }' "$scratch/$1" | median; }

# ratio FILE NAME OTHER-FILE OTHER-NAME SIZE SCALE: of the first to the second in the same round, times
# SCALE; of all rounds that have both.
ratio()
{
    awk -v size="$5" -v mine="$2" -v its="$4" -v scale="$6" '
        $2 != size { next }
        NR == FNR && $3 == mine { x[$1] = $4 }
        NR != FNR && $3 == its && $1 in x && $4 > 0 { print x[$1] / $4 * scale }' \
        "$scratch/$1" "$scratch/$3" | median | awk '{ printf "%.2f", $1 }'
}

measure_latency()
{
    local size
    for size in "${lat_sizes[@]}"; do
        echo "$round $size p50_us $(perftest ib_write_lat 5 "$size" -n 1000)" >>"$scratch/ib_lat"
    done
    stepaf lat 2 af --split attn=1,ffn=1 --size "$(comma "${lat_sizes[@]}")" -i 1000 -w 100 \
        --max-time 1
}

measure_bandwidth()
{
    local size
    for size in "${bw_sizes[@]}"; do
        echo "$round $size mb_per_s $(perftest ib_write_bw 4 "$size" -n $((41943040 / size)) -t $depth)" \
            >>"$scratch/ib_bw"
        asleep bw 2 bw --split attn=1,ffn=1 --size "$size" -d $depth -w $depth --max-time 2
        asleep sum 4 bw --split attn=2,ffn=2,interleave --size "$size" -d 1 -w 1 --max-time 2
    done
}

# within RATIO LEAST MOST: in words.
within() { awk -v x="$1" -v least="$2" -v most="$3" 'BEGIN { print (x >= least && x <= most) ? "yes" : "no" }'; }

half() { awk -v x="$(middle "$@")" 'BEGIN { printf "%.2f", x / 2 }'; }
# millions WORDS: which are in units of 10^9; mebi WORDS: in units of 2^20, as perftest's MB are.
millions() { awk -v x="$(middle "$@")" 'BEGIN { printf "%.1f", x * 1000 }'; }
mebi() { awk -v x="$(middle "$@")" 'BEGIN { printf "%.1f", x * 1.048576 }'; }

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
        ib=$(middle ib_lat "$size" p50_us)
        set -- "$(ratio lat p50_us lat floor.p50_us "$size" 1)" \
            "$(ratio lat p50_us ib_lat p50_us "$size" 0.5)"
        echo "| $size | $ours | $raw | $ib | $1 | $(within "$1" 0.01 1.25) | $2 | $(within "$2" 0.01 1.3) |"
    done
}

report_bandwidth()
{
    local size name ranks flying ours raw ib
    echo "## Bandwidth of pushes, 10^6 bytes/s, in sum"
    echo
    echo "Of ranks that sleep while they wait (STEPAF_VERBS_SLEEP=event, STEPAF_SPIN_US=0,"
    echo "STEPAF_SLEEP_AFTER_US=0), as \`ib_write_bw\`'s receiver does; those of plain verbs poll."
    echo
    echo "| bytes | ranks | in flight of each | stepaf | raw verbs | ib_write_bw | / raw | / ib_write_bw | >= 0.95 |"
    echo "|---|---|---|---|---|---|---|---|---|"
    for size in "${bw_sizes[@]}"; do
        ib=$(mebi ib_bw "$size" mb_per_s)
        for name in bw sum; do
            [ $name = bw ] && ranks=1A1F flying=$depth || ranks=2A2F flying=1
            ours=$(millions $name "$size" gb_per_s)
            raw=$(millions $name "$size" floor.gb_per_s)
            set -- "$(ratio $name gb_per_s $name floor.gb_per_s "$size" 1)" \
                "$(ratio $name gb_per_s ib_bw mb_per_s "$size" 953.674)"
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
    echo "a veth pair. Numbers are medians of $rounds rounds, of bandwidths $((bw_times * rounds)), ratios the medians of each"
    echo "round's."
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
    ours=$(middle rate 8 posts_per_s)
    raw=$(middle rate 8 floor.posts_per_s)
    echo "| stepaf | raw verbs | / raw |"
    echo "|---|---|---|"
    echo "| $ours | $raw | $(ratio rate posts_per_s rate floor.posts_per_s 8 1) |"
}

for ((round = 0; round < rounds; round++)); do
    measure_latency
    measure_bandwidth
    stepaf rate 2 rate --split attn=1,ffn=1 -d 16 --max-time 1
done
# Bandwidths differ most from one time to the next.
for ((; round < bw_times * rounds; round++)); do
    measure_bandwidth
done
report | tee "$VM_JOB/bench.md"
