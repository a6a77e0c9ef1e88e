#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest, whose kernel has Yama: two ranks without privileges, where only ancestors may attach to a process.
# By default tensors in registered memory take one copy all the same; with STEPAF_SHM_PTRACER=off they do not, and
# the reason is said. The times are for the eye: an emulated processor's say little.
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${top_builddir:=$here/../..}"
scope=/proc/sys/kernel/yama/ptrace_scope
if [ ! -e $scope ]; then
    echo "the kernel $(uname -r) has no Yama"
    exit 77
fi
before=$(cat $scope)
trap 'echo "$before" >$scope' EXIT
echo 1 >$scope || exit

# ranks PTRACER: print the transport that the links have, and the least time for 256 KiB each way in microseconds;
# what is said goes to "said". Root's files are root's, but it has no capability.
ranks()
{
    STEPAF_SHM_PTRACER=$1 STEPAF_PRINT_MAP=1 \
        setpriv --inh-caps=-all --bounding-set=-all "$top_builddir/stepaf_perf" af --procs 2 \
        --split attn=1,ffn=1 --transport shm --memory user --size 256K --iters 30 --max-time 1 \
        --no-floor --check --csv 2>&1 | tee "$said" |
        awk -F, '/^push_bytes/ { for (i = 1; i <= NF; i++) at[$i] = i }
            /^[0-9]+,/ { print $at["transport"], $at["min_us"], $at["wrong_bytes"] }'
}

said=$(mktemp) || exit
failed=0
read -r transport us wrong <<<"$(ranks any)"
echo "allowed: $transport, $us us, $wrong wrong bytes"
if [[ ";$transport;" != *";cma;"* ]] || [ "$wrong" != 0 ]; then
    failed=1
    cat "$said"
fi
read -r transport us wrong <<<"$(ranks off)"
echo "not allowed: $transport, $us us, $wrong wrong bytes; $(grep -m 1 -o 'process_vm_readv: .*' "$said")"
if [[ ";$transport;" == *";cma;"* ]] || [ "$wrong" != 0 ] || ! grep -q 'ptrace_scope is 1' "$said"; then
    failed=1
    cat "$said"
fi
rm -f "$said"
exit $failed
