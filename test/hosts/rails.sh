#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libfabric over two interfaces of each host: a rail each, and tensors in shares. All bytes are looked at, both
# interfaces have their part, and one alone does the work where the settings say so. RAILS_SPEED=1: also how fast
# one and two are, at 400 Mbit/s each.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
hosts_enter "$@"
[ -z "${RAILS_SPEED:-}" ] || hosts_need_mpirun
hosts_up 2 || exit 99

# The second interface, by a switch of its own.
ip link add br1 type bridge && ip link set br1 up || exit 99
for host in 1 2; do
    ip link add "second$host" type veth peer name eth1 netns "h$host" &&
        ip link set "second$host" master br1 up && ip -n "h$host" link set eth1 up &&
        ip -n "h$host" address add "10.78.0.$host/24" dev eth1 || exit 99
done

# sent HOST INTERFACE: bytes.
sent() { ip -n "$1" -s link show "$2" | awk 'n && n++ == 2 { print $1 } /TX:/ { n = 1; n++ }'; }

export STEPAF_TRANSPORTS=ofi
why=$(STEPAF_OFI_DOMAINS=eth0,eth1 hosts_run h1 "$top_builddir/stepaf_info" -t | grep '^ofi')
case $why in
*"domains eth0, eth1"*) echo "$why" ;;
*) hosts_skip "no two domains: $why" ;;
esac

# exchange DOMAINS: sets eth0 and eth1 to what the first host has sent by each.
exchange()
{
    eth0=$(sent h1 eth0) eth1=$(sent h1 eth1)
    STEPAF_OFI_DOMAINS=$1 hosts_fork h1,h2 "$top_builddir/test/mpi/random" --procs 4 --split attn=2,ffn=2,interleave \
        --seed 61 --ops 200 --max-bytes 400000 || exit 1
    eth0=$(($(sent h1 eth0) - eth0)) eth1=$(($(sent h1 eth1) - eth1))
    echo "$1: $eth0 bytes by eth0, $eth1 by eth1"
}

exchange eth0,eth1
[ $((eth0 / 3)) -lt $eth1 ] && [ $((eth1 / 3)) -lt $eth0 ] && [ $eth1 -gt 1000000 ] ||
    { echo "FAILED: one has carried most of it"; exit 1; }
exchange eth1
[ $eth0 -lt 10000 ] && [ $eth1 -gt 1000000 ] || { echo "FAILED: eth0 has carried something"; exit 1; }

if [ -n "${RAILS_SPEED:-}" ]; then
    for host in h1 h2; do
        for interface in eth0 eth1; do
            tc -n $host qdisc add dev $interface root tbf rate 400mbit burst 128kb latency 50ms || exit 99
        done
    done
    for domains in eth0 eth0,eth1; do
        echo "== $domains"
        STEPAF_OFI_DOMAINS=$domains hosts_mpirun h1:1,h2:1 -n 2 --map-by node -x STEPAF_OFI_DOMAINS -x STEPAF_TRANSPORTS \
            "$top_builddir/stepaf_perf" bw --split attn=1,ffn=1 --size 64K,1M,8M || exit 1
    done
fi
hosts_check
