#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Which way it goes: by IPv6 alone, by an interface's name, by a subnet, by a router's address, over a bond. mpirun, which takes more
# time than the ranks, starts those of the subnet; the others are forked and move to their hosts.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
hosts_enter "$@"
hosts_need_mpirun
few=$top_srcdir/test/hosts/few.jobs
hosts_up 3 || exit 99

# received HOST KIND: bytes that came to it by IPv4 or IPv6.
received()
{
    case $2 in
    6) ip netns exec "$1" awk '$1 == "Ip6InOctets" { print $2 }' /proc/net/snmp6 ;;
    4) ip netns exec "$1" awk '$1 == "IpExt:" { if (n++) print $8 }' /proc/net/netstat ;;
    esac
}

if [ -d /proc/sys/net/ipv6 ]; then
    before=$(received h2 6)
    STEPAF_NET_IF=fd77::/64 TEST_LAUNCH=fork hosts_jobs "$few" || exit 1
    came=$(($(received h2 6) - before))
    echo "$came bytes came to h2 by IPv6"
    [ $came -gt 1000000 ] || { echo "FAILED: that is too few"; exit 1; }
else
    echo "SKIP: the kernel has no IPv6"
fi
STEPAF_NET_IF=eth0 TEST_LAUNCH=fork hosts_jobs "$few" || exit 1
before=$(received h2 4)
STEPAF_NET_IF=10.77.0.0/24 hosts_jobs "$few" || exit 1
came=$(($(received h2 4) - before))
echo "$came bytes came to h2 by IPv4"
[ $came -gt 1000000 ] || { echo "FAILED: that is too few"; exit 1; }
hosts_down

# Hosts that are routers: their cards have link-local addresses, and the one that leads to a host is of its interface lo.
hosts_up 2 || exit 99
link_local() { ip -n "$1" -6 -o address show dev eth0 scope link -tentative | awk '{ sub("/.*", "", $4); print $4 }'; }
for host in 1 2; do
    ip -n h$host address flush dev eth0 scope global
    ip -n h$host address add 10.99.0.$host/32 dev lo || exit 99
    for _ in $(seq 50); do
        [ -z "$(link_local h$host)" ] || break
        sleep 0.1
    done
done
if ip -n h1 route add 10.99.0.2/32 via inet6 "$(link_local h2)" dev eth0 src 10.99.0.1 2>/dev/null; then
    ip -n h2 route add 10.99.0.1/32 via inet6 "$(link_local h1)" dev eth0 src 10.99.0.2 || exit 99
    STEPAF_TRANSPORTS=tcp hosts_fork h1,h2 "$top_builddir/test/mpi/random" --procs 4 --split attn=2,ffn=2,interleave \
        --seed 63 --ops 200 || exit 1
    TEST_LAUNCH=fork hosts_fork h1,h2 "$top_builddir/test/mpi/returns" --procs 3 --split attn=1,ffn=2 --rounds 1 --role 1 ||
        exit 1
else
    echo "SKIP: the kernel has no routes to IPv4 by IPv6"
fi
hosts_down

if ip link add bond0 type bond 2>/dev/null; then
    ip link del bond0
    hosts_up 3 bond || exit 99
    TEST_LAUNCH=fork hosts_jobs "$few" || exit 1
else
    echo "SKIP: the kernel has no bonds"
fi
hosts_check
