#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: delays that are put in on purpose, over two rails of Soft-RoCE, and whether the verdict finds them:
#
#   verdict.sh KIND...    start, queue, work, wait, starved; there and back, of both rails at once, and rail-there and
#                         rail-back, of one of them: these by the kernel's netem
#
# VERDICT_TIMES=25 puts in as many of each kind and size at each attention rank, of which VERDICT_PERCENT have to be right.
# FFN ranks take 20 ms for a batch, or VERDICT_WORK_US: an emulated processor is slow, and what is late is so by comparison.
# VERDICT_SPLIT is by default attn=1,ffn=1, and has to be for delays of the network, which meet all ranks on a rail.
set -u
here=$(cd "$(dirname "$0")" && pwd)
times=${VERDICT_TIMES:-1}
case=$(mktemp) || exit
trap 'rm -f "$case"' EXIT
kinds=$*
split=${VERDICT_SPLIT:-attn=1,ffn=1}
attention=${split#attn=}
ranks=$((${attention%,*} + ${split#*ffn=}))
cat >"$case" <<END
STEPAF_SLEEP_AFTER_US=100
STEPAF_VERBS_STRIPE_BYTES=4096
fork $ranks verdict --split $split --times $times --percent ${VERDICT_PERCENT:-33} --pairs 0 --kinds ${kinds// /,} --rails 2 --bytes 8192 --work-us ${VERDICT_WORK_US:-20000} --pause-us 5000 --netem-there r0a,r1a --netem-back r0b,r1b
END
"$here/over.sh" r0,r1 "$case"
status=$?
for end in r0a r0b r1a r1b; do
    tc qdisc del dev $end root 2>/dev/null
done
exit $status
