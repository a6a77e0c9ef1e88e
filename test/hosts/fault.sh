#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hosts and their network fail: who needs them hears of it in time, all else goes on. Ranks that die by
# themselves are in test/mpi/programs.jobs.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
# It is mostly waiting, and costs sanitizer builds minutes.
[ -z "${SANITIZERS:-}" ] || hosts_skip "sanitizer builds have test/mpi/tcp_semantics for this"
hosts_enter "$@"
fault=$top_builddir/test/mpi/fault
unset STEPAF_SPLIT STEPAF_ROLE
hosts_up 3 || exit 99
# Outside of the range that the kernel takes ports from by itself.
export STEPAF_NET_PORTS=27110-27139
export TEST_TIMEOUT_S=60

# broken SPLIT CASE ARGUMENT...: two ranks on h1, two on h2, and the last one alone on h3.
broken()
{
    split=$1
    shift
    echo "== $split $*"
    hosts_fork h1,h1,h2,h2,h3 "$fault" --procs 5 --split "$split" --case "$@" || exit 1
}

export STEPAF_TRANSPORTS=tcp
broken attn=2,ffn=3 ffn-load --bytes 500000 --delay-us 31000
# In the middle of a tensor, of which nobody sees anything.
broken attn=2,ffn=3 halfway-ffn --bytes 67108864
broken attn=3,ffn=2 halfway-attention --bytes 67108864
export STEPAF_TRANSPORTS=

# The shortest there is.
export STEPAF_TCP_PEER_TIMEOUT_US=1000000
# cut BYTES COMMAND MEND [NOTICE-MS]: the last host loses its network under tensors of that size.
cut()
{
    broken attn=2,ffn=3 cut --bytes "$1" --cut "$2" --mend "$3" --notice-ms "${4:-6000}"
}
switch="nsenter --net=/proc/1/ns/net"
cut 3000000 "ip -n h3 link set eth0 down" "ip -n h3 link set eth0 up"
cut 256 "$switch ip link set port3 down" "$switch ip link set port3 up"
# All is lost without a word, the link itself stays up.
for bytes in 256 3000000; do
    cut $bytes "$switch bridge link set dev port3 state disabled" \
        "$switch bridge link set dev port3 state forwarding"
done
if ip netns exec h3 ss -tK dst 127.9.9.9 >/dev/null 2>&1; then
    for bytes in 256 3000000; do
        cut $bytes "ip netns exec h3 ss -tK '( sport >= :27110 and sport <= :27139 )' >/dev/null" \
            true 1000
    done
else
    echo "SKIP: the kernel does not let ss reset connections"
fi

# Who stands still is late, not lost: longer than a silent host may be silent; and with a tensor on
# its way that its host has no room for.
broken attn=2,ffn=3 stopped --stop-us 1600000
unset STEPAF_TCP_PEER_TIMEOUT_US
broken attn=2,ffn=3 stopped --stop-us 1600000 --bytes 12000000
hosts_check
