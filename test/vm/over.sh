#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: run a case of test/mpi over RDMA, between the ends of rails: over.sh RAIL[,RAIL] FILE
# What the ranks say to each other has to have crossed every one of the rails. With --needs before
# the rails: only see whether they are there; exit code 77 if the kernel has none. A case may ask for transport ofi or
# ucx instead, which take the first rail.
#
# Ranks are forked, unless TEST_LAUNCH=mpirun: an emulated processor takes longer to start mpirun than for most
# cases.
set -u
here=$(cd "$(dirname "$0")" && pwd)
only_needs=
if [ "$1" = --needs ]; then
    only_needs=yes
    shift
fi
rails=$1
export VM_RAILS=${rails//,/ } TEST_WRAP=$here/ends.sh STEPAF_TRANSPORTS=verbs
export TEST_LAUNCH="${TEST_LAUNCH:-fork}"

packets() { cat "/sys/class/net/${1}b/statistics/rx_packets"; }

declare -A before
for rail in $VM_RAILS; do
    if [ ! -e "/sys/class/infiniband/${rail}a" ]; then
        module=rdma_rxe
        case $rail in
        s*) module=siw ;;
        esac
        modinfo $module >/dev/null 2>&1 && exit 1
        echo "${VM_SIW_REASON:-the kernel $(uname -r) has no module $module}"
        exit 77
    fi
    before[$rail]=$(packets "$rail")
done
[ -z "$only_needs" ] || exit 0
sh "$here/../mpi/run.sh" "$2" || exit
for rail in $VM_RAILS; do
    crossed=$(($(packets "$rail") - before[$rail]))
    echo "$crossed packets over $rail"
    # Connecting two ranks takes none by the bootstrap, and about ten by librdmacm.
    [ "$crossed" -ge 50 ] || exit 1
done
