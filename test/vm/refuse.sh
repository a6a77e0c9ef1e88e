#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: what real devices do not give is refused in words that say what to do. Of what a device
# may hold inline there is nothing to refuse: the library takes what it gets, which test_verbs_send tries.
# Exit code 77 if this kernel has no such devices.
set -u
: "${top_builddir:?names no build}"
here=$(cd "$(dirname "$0")" && pwd)
job="$top_builddir/test/mpi/shapes --procs 2 --split attn=1,ffn=1 --expect af"
# Root may lock as much memory as it likes, and open all files.
nobody="setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all"
failed=0
"$here/over.sh" --needs r0 || exit
export STEPAF_TRANSPORTS=verbs STEPAF_NET_DEVICES=r0a

# refused WORDS COMMAND...: it fails, and says so.
refused()
{
    local words=$1 said
    shift
    if said=$("$@" 2>&1 </dev/null); then
        echo "not refused: $*"
    elif [[ $said == *"$words"* ]]; then
        echo "good: $words"
        return
    fi
    failed=1
    echo "not said: $words; but: $said"
}

# shellcheck disable=SC2086
{
    $nobody $job || failed=1 # all that follows is for the reason given
    refused "there are: r0a, r0b" env STEPAF_NET_DEVICES=mlx5_9 $job
    refused "has 1 ports" env STEPAF_NET_DEVICES=r0a:2 $job
    refused "has GIDs 0 to " env STEPAF_VERBS_GID_INDEX=9999 $job
    refused "at most 4 KiB may be locked: raise this limit (ulimit -l unlimited)" \
        prlimit --memlock=4096 $nobody $job
    chmod 600 /dev/infiniband/uverbs*
    refused "read and write access" $nobody $job
    chmod 666 /dev/infiniband/uverbs*
}
exit $failed
