#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: delays that the kernel's netem puts in between two network namespaces, and whether the verdict finds them:
#
#   verdict_hosts.sh tcp KIND...    start, queue, work, wait, starved, there, back
#   verdict_hosts.sh ofi KIND...    by libfabric's tcp;ofi_rxm over two interfaces, also rail-there, rail-back: of one
#
# Settings as of verdict.sh. All attention ranks are in one namespace and all FFN ranks in the other. What
# comes back is delayed where it comes in, by way of ifb devices, so one tc reaches all.
set -u
here=$(cd "$(dirname "$0")" && pwd)
split=${VERDICT_SPLIT:-attn=1,ffn=1}
attention=${split#attn=}
attention=${attention%,*}
ffn=${split#*ffn=}
transport=$1
shift
kinds=$*
case $transport in
tcp) rails=0 options="--bytes 8192" settings= ;;
# Tensors of this size go in shares.
ofi) rails="0 1" options="--bytes 262144 --rails 2" settings="STEPAF_OFI_PROVIDER=tcp;ofi_rxm
STEPAF_OFI_DOMAINS=v0,v1
TEST_KEPT_FDS=12" ;;
esac
for module in ifb act_mirred cls_matchall sch_ingress sch_netem; do
    if ! modprobe "$module"; then
        echo "the kernel $(uname -r) has no module $module"
        exit 77
    fi
done
case=$(mktemp) || exit
trap 'ip netns del va; ip netns del vf; rm -f "$case"' EXIT
ip netns add va && ip netns add vf && ip -n va link set lo up && ip -n vf link set lo up || exit
there=
back=
for rail in $rails; do
    ip -batch - <<END || exit
link add v$rail netns va type veth peer name v$rail netns vf
END
    ip -n vf -batch - <<END || exit
addr add 10.1.$((9 + rail)).2/24 dev v$rail
link set v$rail up
END
    ip -n va -batch - <<END || exit
addr add 10.1.$((9 + rail)).1/24 dev v$rail
link set v$rail up
link add back$rail type ifb
link set back$rail up
END
    tc -n va -batch - <<END || exit
qdisc add dev v$rail ingress
filter add dev v$rail parent ffff: matchall action mirred egress redirect dev back$rail
END
    there=$there${there:+,}v$rail
    back=$back${back:+,}back$rail
done
if [ "$transport" = ofi ]; then
    usable=$(STEPAF_TRANSPORTS=ofi STEPAF_OFI_PROVIDER='tcp;ofi_rxm' STEPAF_OFI_DOMAINS=v0,v1 \
        ip netns exec va "$top_builddir/stepaf_info" -t | grep '^ofi ')
    case $usable in
    *'can be used'*) echo "$usable" ;;
    *)
        echo "no transport ofi: ${usable:-this build was made without libfabric}"
        exit 77
        ;;
    esac
fi
# Ranks go to the namespaces of a list in turn: attention ranks come first.
hosts=
for ((rank = 0; rank < attention + ffn; rank++)); do
    hosts=$hosts${hosts:+,}$([ "$rank" -lt "$attention" ] && echo va || echo vf)
done
cat >"$case" <<END
STEPAF_SLEEP_AFTER_US=100
STEPAF_TRANSPORTS=$transport
TEST_HOSTS=$hosts
$settings
fork $((attention + ffn)) verdict --split $split --times ${VERDICT_TIMES:-1} --percent ${VERDICT_PERCENT:-33} --pairs 0 --kinds ${kinds// /,} $options --work-us ${VERDICT_WORK_US:-20000} --pause-us 5000 --netem-there $there --netem-back $back
END
TEST_LAUNCH=fork sh "$here/../mpi/run.sh" "$case"
