#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: stepaf-accept between the ends of a rail, with another one beside it: accept.sh RAIL RAIL
# The second goes down in the middle of the operations over both.
set -u
: "${top_builddir:?names no build}"
here=$(cd "$(dirname "$0")" && pwd)
"$here/over.sh" --needs "$1,$2" || exit
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export VM_RAILS=$1 STEPAF_ACCEPT_BIN=$top_builddir STEPAF_VERBS_PEER_TIMEOUT_US=30000000
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
# A median here is of a machine with other work: nothing is said of its speed.
"$here/../../tools/stepaf-accept" -o "$scratch" -l 1000 --patience 5 --only "nic_map verbs rails rail_loss bond" \
    -r VM_RAILS="$1 $2" --lose-by "ip link set ${2}b down" --restore "ip link set ${2}b up" \
    -- mpirun --oversubscribe --bind-to none -n 2 "$here/ends.sh" | tee "$scratch/table" || exit
grep -q '^PASS *rail_loss' "$scratch/table"
