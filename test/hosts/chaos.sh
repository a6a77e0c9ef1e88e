#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Chaos between two hosts, whose network is slow, cut, and cut in two halves, beside what happens to ranks. With
# CHAOS_SECONDS=180 it is as long, CHAOS_SEED another schedule, and CHAOS_ROOM another number of new ranks.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
[ -z "${SANITIZERS:-}" ] || hosts_skip "sanitizer builds have test/mpi/chaos.case for this"
hosts_enter "$@"
seconds=${CHAOS_SECONDS:-2}
export TEST_TIMEOUT_S=$((seconds + 110))
unset STEPAF_SPLIT STEPAF_ROLE
hosts_cabled 0 || exit
# Those who come again while the network is cut in two are to find that out and to try once more.
export STEPAF_TCP_PEER_TIMEOUT_US=2000000 STEPAF_INIT_TIMEOUT_US=1500000
# The first packet of a connection that is lost comes again after 1, 3 and 7 s.
export STEPAF_TCP_CONNECT_US=10000000
# One attention and one FFN rank are on h2 and new ranks on h1, where most are: the network is cut in two only if the larger
# half goes on though two of its ranks die (test/mpi/chaos_cable.c).
hosts_fork h1,h1,h1,h2 "$top_builddir/test/mpi/chaos" --procs 8 --split attn=4,ffn=4 --seconds "$seconds" \
    --seed "${CHAOS_SEED:-1}" --room "${CHAOS_ROOM:-2}" --cable /run/cable --report 1
code=$?
exec 9>&-
[ $code -eq 0 ] || cat /run/said
exit $code
