#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: run a case of test/mpi over RDMA while something is wrong with a rail.
#
#   faults.sh netem RAIL FILE WORD...  packets are treated as the words say, both ways
#   faults.sh down RAIL,RAIL FILE      the first rail's link goes down halfway, for good
#   faults.sh silent RAIL,RAIL FILE    nothing gets through on the first rail from halfway on
#   faults.sh mute RAIL FILE           nothing gets through on the only rail, from before the start: it is TCP's
#   faults.sh cut RAIL                 a rail goes silent: its peers are lost in time, others go on
#   faults.sh killed RAIL              a rank is killed: the same
#   faults.sh trespass RAIL            a rank writes where it may not: the same
#
# The case itself checks every byte. Here it is checked that the fault was there.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top_srcdir=$(cd "$here/../.." && pwd)
export top_srcdir

packets() { cat "/sys/class/net/${1}b/statistics/rx_packets"; }
state() { grep -q "$2" "/sys/class/infiniband/$1/ports/1/state"; }

# until_true SECONDS COMMAND...: poll it.
until_true()
{
    local limit=$((SECONDS + $1))
    shift
    until "$@"; do
        if [ "$SECONDS" -ge "$limit" ]; then
            echo "not so in time: $*"
            return 1
        fi
        sleep 0.1
    done
}

# netem_set RAIL WORD...: in both directions; netem_end RAIL: say what it did, and end it.
netem_set()
{
    local rail=$1
    shift
    tc qdisc add dev "${rail}a" root netem limit 10000 "$@" &&
        tc qdisc add dev "${rail}b" root netem limit 10000 "$@"
}
netem_end()
{
    tc -s qdisc show dev "$1a"
    rdma statistic show link "$1a/1" | tr ' ' '\n' | paste - - | grep -E 'retry|rnr|duplicate|out_of' || :
    tc qdisc del dev "$1a" root
    tc qdisc del dev "$1b" root
}

# Soft-RoCE of Linux 6.8 computes a checksum over as many bytes as a packet says to have: where netem has corrupted just
# that, the kernel ends (rxe_icrc_check). What comes with other kernels than 6.1 is not corrupted.
may_corrupt()
{
    case $(uname -r) in
    6.1.*) ;;
    *) return 1 ;;
    esac
}

# Retransmission comes after 4 ms instead of 67, or there would be nothing but waiting.
netem()
{
    local rail=$1 case=$2 status report words="${*:3}"
    if [ "$words" != "${words% corrupt *}" ] && ! may_corrupt; then
        echo "Soft-RoCE of $(uname -r) does not withstand corrupt packets: without ${words##*% }"
        words=${words% corrupt *}
    elif [ "$words" != "${words#corrupt }" ] && ! may_corrupt; then
        echo "skipped: Soft-RoCE of $(uname -r) does not withstand corrupt packets"
        exit 77
    fi
    # shellcheck disable=SC2086
    set -- $words
    "$here/over.sh" --needs "$rail" || exit
    netem_set "$rail" "$@" || return
    STEPAF_VERBS_TIMEOUT=${STEPAF_VERBS_TIMEOUT:-10} "$here/over.sh" "$rail" "$case"
    status=$?
    report=$(netem_end "$rail")
    echo "$report"
    [ $status -eq 0 ] || return $status
    case $1 in
    loss) echo "$report" | grep -q 'dropped [1-9]' ;;
    *) echo "$report" | grep -q 'Sent [0-9]* bytes [1-9]' ;;
    esac
}

# has_grown RAIL FROM BY: whether so many packets have come over it.
has_grown() { [ $(($(packets "$1") - $2)) -ge "$3" ]; }

link_down() { ip link set "$1b" down; }
link_up()
{
    ip link set "$1b" up &&
        until_true 20 state "$1a" ACTIVE && until_true 20 state "$1b" ACTIVE &&
        "$here/rails.sh" route "$1"
}
silence() { netem_set "$1" loss 100%; }
speech() { netem_end "$1"; }

# halfway BEGIN END RAIL,RAIL FILE: both are functions that are told the first rail.
halfway()
{
    local begin=$1 end=$2 rails=$3 case=$4 rail=${3%%,*} other=${3##*,} before status=1 job
    "$here/over.sh" --needs "$rails" || exit
    before=$(packets "$rail")
    "$here/over.sh" "$rails" "$case" &
    job=$!
    if until_true 120 has_grown "$rail" "$before" "${VM_PACKETS:-400}" && kill -0 $job 2>/dev/null; then
        before=$(packets "$other")
        "$begin" "$rail" && echo "$rail: $begin"
        wait $job
        status=$?
        echo "$(($(packets "$other") - before)) packets over $other since then"
        [ $status -ne 0 ] || has_grown "$other" "$before" 100 || status=1
    else
        echo "too late: the case is over"
        kill $job 2>/dev/null
        wait $job
    fi
    "$end" "$rail" || status=1
    return $status
}

# Both ends find nothing get through, and agree on TCP: every link says why.
mute()
{
    local rail=$1 case=$2 said status
    "$here/over.sh" --needs "$rail" || exit
    silence "$rail" || return
    said=$(VM_RAILS=$rail TEST_WRAP=$here/ends.sh TEST_LAUNCH=fork STEPAF_TRANSPORTS=verbs,tcp \
        STEPAF_VERBS_PEER_TIMEOUT_US=1000000 sh "$here/../mpi/run.sh" "$case" 2>&1)
    status=$?
    speech "$rail"
    echo "$said"
    [ $status -eq 0 ] && grep -q 'verbs cannot be used: .*no data gets through.*: both ends use tcp' <<<"$said"
}

# In time: a tenth beyond what the peers are given.
notice_ms() { echo $((${STEPAF_VERBS_PEER_TIMEOUT_US:-5000000} * 11 / 10000)); }

# The last of three ranks is at the other end than the two others, and alone so.
cut()
{
    local rail=$1 scratch status
    "$here/over.sh" --needs "$rail" || exit
    scratch=$(mktemp -d) || return
    printf '#!/bin/sh\ntc qdisc add dev %s root netem loss 100%%\ntc qdisc add dev %s root netem loss 100%%\n' \
        "${rail}a" "${rail}b" >"$scratch/cut"
    printf '#!/bin/sh\ntc qdisc del dev %s root\ntc qdisc del dev %s root\n' \
        "${rail}a" "${rail}b" >"$scratch/mend"
    chmod +x "$scratch/cut" "$scratch/mend"
    printf '3 fault --split attn=1,ffn=2 --case cut --notice-ms %d --cut %s --mend %s\n' \
        "$(notice_ms)" "$scratch/cut" "$scratch/mend" >"$scratch/cut.case"
    VM_FAR=2 "$here/over.sh" "$rail" "$scratch/cut.case"
    status=$?
    rm -r "$scratch"
    return $status
}

killed()
{
    local rail=$1 scratch status
    "$here/over.sh" --needs "$rail" || exit
    scratch=$(mktemp -d) || return
    printf 'fork 4 fault --split attn=2,ffn=2 --case %s --notice-ms %d\n' \
        ffn-held "$(notice_ms)" ffn-load "$(notice_ms)" attention "$(notice_ms)" >"$scratch/killed.case"
    STEPAF_TRANSPORTS=verbs STEPAF_NET_DEVICES=${rail}a sh "$here/../mpi/run.sh" "$scratch/killed.case"
    status=$?
    rm -r "$scratch"
    return $status
}

# The program skips itself where there is no device: here there is one.
trespass()
{
    local status
    "$here/over.sh" --needs "$1" || exit
    TEST_ENDS="${1}a ${1}b" sh "$here/../mpi/run.sh" "$here/../mpi/trespass.case"
    status=$?
    [ $status -ne 77 ] || status=1
    return $status
}

case ${1:-} in
netem | mute | cut | killed | trespass) "$@" ;;
down) halfway link_down link_up "$2" "$3" ;;
silent) halfway silence speech "$2" "$3" ;;
*)
    sed -n '3,14s/^#\( \|$\)//p' "$0"
    exit 2
    ;;
esac
