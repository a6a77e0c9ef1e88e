#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Starts that fail for what the network is or has not: each says why, word by word.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
hosts_enter "$@"
hosts_need_mpirun
. "$top_srcdir/test/mpi/startup_try.sh"
unset STEPAF_ROLE
hosts_up 3 || exit 99
out=/run/said
startup=$top_builddir/test/mpi/startup
export STEPAF_SPLIT=attn=2,ffn=1

# starts SETTING...: three ranks with these settings, each on a host of its own.
starts() { hosts_mpirun h1:2,h2:2,h3:2 -n 3 --map-by node env "$@" "$startup"; }

# What one rank finds out alone it says as it is; all others say who has.
here_and_there() { printf '%s\nworld rank %s: %s\n' "$2" "$1" "$2"; }

starts A=1 || { echo "FAILED: a start that has to work"; exit 1; }
try "an interface that does not exist" \
    "$(here_and_there 0 'STEPAF_NET_IF: "eth7" is not an interface of this host')" \
    starts STEPAF_NET_IF=eth7
try "a subnet that no interface is in" \
    "$(here_and_there 0 'STEPAF_NET_IF: "10.99.0.0/16" contains no address of this host that is up')" \
    starts STEPAF_NET_IF=10.99.0.0/16
# Two FFN ranks on one host, 2 and 5, and one port: one of them comes first.
two_at_one()
{
    hosts_mpirun h1:2,h2:2,h3:2 -n 6 --map-by node env STEPAF_SPLIT=attn=2,ffn=4 \
        STEPAF_NET_PORTS=27110 "$startup" >/run/two 2>&1
    code=$?
    sed 's/world rank [25]:/world rank 2 or 5:/' /run/two
    return $code
}
try "no port left" "$(here_and_there '2 or 5' 'tcp: no free port in STEPAF_NET_PORTS=27110')" \
    two_at_one
# Which others there are, that were not to be tried, depends on the build.
shm_alone()
{
    starts STEPAF_TRANSPORTS=shm >/run/alone 2>&1
    code=$?
    # The last is cut off where a sentence becomes too long.
    sed 's/; [a-z]*: STEPAF_TRANSPORTS does not list it//g; s/; [a-z]*: [A-Za-z_ ]*[.][.][.]$//' /run/alone
    return $code
}
far="shm: on another node, or in another PID namespace"
try "no transport that reaches" "\
no transport reaches FFN rank 0 (world rank 2): $far
no transport reaches attention rank 0 (world rank 0): $far" shm_alone
# Every host has an address on the loopback interface, which leads to itself: nobody tries another's. What
# is said of better transports depends on the machine.
nobody_there()
{
    starts STEPAF_NET_IF=lo STEPAF_NET_PORTS=27110 STEPAF_TCP_CONNECT_US=300000 >/run/nobody 2>&1
    code=$?
    sed 's/): shm: .*; tcp: /): tcp: /' /run/nobody
    return $code
}
# either_or_both WORDS: two ranks find the same out; whoever is later may hear it from the other first.
either_or_both() { here_and_there '0 or 1' "$1"; }
from_either()
{
    "$@" >/run/either 2>&1
    code=$?
    sed 's/world rank [01]:/world rank 0 or 1:/' /run/either
    return $code
}
try "an address that nobody is at" \
    "$(either_or_both 'no transport reaches FFN rank 0 (world rank 2): tcp: all are this host'\''s own')" \
    from_either nobody_there
# An address without a way to it, and one with a way on which all is lost.
for index in 1 2 3; do
    ip -n h$index link add eth1 type veth peer name eth1p &&
        ip -n h$index address add 10.88.$index.1/24 dev eth1 &&
        ip -n h$index link set eth1 up && ip -n h$index link set eth1p up || exit 99
done
export OMPI_MCA_btl_tcp_if_exclude=lo,eth1,eth1p OMPI_MCA_oob_tcp_if_exclude=lo,eth1,eth1p
# Nobody waits for the commit's deadline, which is beyond what a start may take here.
try "an unreachable network" \
    "$(either_or_both 'FFN rank 0 (world rank 2) is lost: 10.88.3.1:27110: Network is unreachable')" \
    from_either starts STEPAF_NET_IF=eth1 STEPAF_NET_PORTS=27110 STEPAF_TCP_CONNECT_US=300000
for index in 1 2; do
    ip -n h$index route add 10.88.3.0/24 via 10.77.0.99 || exit 99
done
try "a host that does not answer" \
    "$(either_or_both 'FFN rank 0 (world rank 2) is lost: 10.88.3.1:27110: no answer in time')" \
    from_either starts STEPAF_NET_IF=eth1 STEPAF_NET_PORTS=27110 STEPAF_TCP_CONNECT_US=300000
echo "$try_count starts"
hosts_check || exit 1
exit $try_failed
