#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Verdicts between two hosts a millisecond apart, whose clocks ranks have to find out by probes: delays that are put in
# on the way there and back, on that of one of two connections alone, and at the FFN rank. VERDICT_TIMES=25 puts in as
# many of each kind and size.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
[ -z "${SANITIZERS:-}" ] || hosts_skip "sanitizer builds have test/mpi/verdict.case for this"
hosts_enter "$@"
times=${VERDICT_TIMES:-1}
unset STEPAF_SPLIT STEPAF_ROLE
export STEPAF_TRANSPORTS=tcp STEPAF_SLEEP_AFTER_US=100 TEST_TIMEOUT_S=$((120 + 20 * times))
# Tensors of as many bytes go by both connections.
bytes=65536
export STEPAF_TCP_CONNECTIONS=2 STEPAF_TCP_STRIPE_BYTES=$bytes

hosts_cabled 1000 || exit
hosts_run h1 ping -c 2 -q h2 2>/dev/null | grep rtt
hosts_fork h1,h2 "$top_builddir/test/mpi/verdict" --procs 2 --split attn=1,ffn=1 --rails 2 --bytes $bytes \
    --kinds "${VERDICT_KINDS:-there,back,rail-there,rail-back,work,queue}" --pairs 0 --times "$times" --percent "${VERDICT_PERCENT:-33}"
code=$?
exec 9>&-
exit $code
