#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: run a case of test/mpi over RDMA on a build with sanitizers: asan.sh RAIL FILE
# TEST_SANITIZED is that build's directory. Its programs fork their ranks, all at the rail's end a.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top_srcdir=$(cd "$here/../.." && pwd)
top_builddir=${TEST_SANITIZED:-}
export top_srcdir top_builddir SANITIZERS=address,undefined
if [ ! -x "$top_builddir/test/mpi/shapes" ]; then
    echo "TEST_SANITIZED names no build with sanitizers"
    exit 77
fi
"$here/over.sh" --needs "$1" || exit
# shellcheck source=SCRIPTDIR/../sanitize.sh
. "$here/../sanitize.sh"
export STEPAF_TRANSPORTS=verbs STEPAF_NET_DEVICES=${1}a
exec sh "$here/../mpi/run.sh" "$2"
