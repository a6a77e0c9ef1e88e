#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: delays that the kernel's netem puts in over TCP, between two network namespaces, and whether the verdict
# finds them:
#
#   verdict_tcp.sh KIND...    start, queue, work, wait, starved, there, back
#
# Settings as of verdict.sh. All attention ranks are in one namespace and all FFN ranks in the other. What
# comes back is delayed where it comes in, by way of an ifb device, so one tc reaches both.
set -u
here=$(cd "$(dirname "$0")" && pwd)
split=${VERDICT_SPLIT:-attn=1,ffn=1}
attention=${split#attn=}
attention=${attention%,*}
ffn=${split#*ffn=}
kinds=$*
for module in ifb act_mirred cls_matchall sch_ingress sch_netem; do
    if ! modprobe "$module"; then
        echo "the kernel $(uname -r) has no module $module"
        exit 77
    fi
done
case=$(mktemp) || exit
trap 'ip netns del va; ip netns del vf; rm -f "$case"' EXIT
ip -batch - <<END || exit
netns add va
netns add vf
link add v0 netns va type veth peer name v0 netns vf
END
ip -n vf -batch - <<END || exit
link set lo up
addr add 10.1.9.2/24 dev v0
link set v0 up
END
ip -n va -batch - <<END || exit
link set lo up
addr add 10.1.9.1/24 dev v0
link set v0 up
link add back type ifb
link set back up
END
tc -n va -batch - <<END || exit
qdisc add dev v0 ingress
filter add dev v0 parent ffff: matchall action mirred egress redirect dev back
END
# Ranks go to the namespaces of a list in turn: attention ranks come first.
hosts=
for ((rank = 0; rank < attention + ffn; rank++)); do
    hosts=$hosts${hosts:+,}$([ "$rank" -lt "$attention" ] && echo va || echo vf)
done
cat >"$case" <<END
STEPAF_SLEEP_AFTER_US=100
STEPAF_TRANSPORTS=tcp
TEST_HOSTS=$hosts
fork $((attention + ffn)) verdict --split $split --times ${VERDICT_TIMES:-1} --percent ${VERDICT_PERCENT:-33} --pairs 0 --kinds ${kinds// /,} --bytes 8192 --work-us ${VERDICT_WORK_US:-20000} --pause-us 5000 --netem-there v0 --netem-back back
END
TEST_LAUNCH=fork sh "$here/../mpi/run.sh" "$case"
