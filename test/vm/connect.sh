#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: connect again and again, 24 queue pairs each time, and use them: connect.sh RAIL TIMES
# All ranks are at end a of the rail.
set -u
: "${top_builddir:?names no build}"
here=$(cd "$(dirname "$0")" && pwd)
"$here/over.sh" --needs "$1" || exit
export STEPAF_TRANSPORTS=verbs STEPAF_NET_DEVICES=${1}a STEPAF_VERBS_QPS=4
for ((i = 1; i <= $2; i++)); do
    if ! "$top_builddir/test/mpi/shapes" --procs 5 --split attn=3,ffn=2 --expect aaaff </dev/null; then
        echo "number $i of $2 has failed"
        exit 1
    fi
done
