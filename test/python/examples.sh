#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The examples in Python: without a launcher; under mpirun by PMIx; and by MPI, which the package
# initializes, since these programs have none of their own.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}" "${PYTHON:=python3}"
. "$top_srcdir/test/mpi/env.sh"
PYTHONPATH=$top_builddir/python/site
STEPAF_LIBRARY=$top_builddir/.libs
PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH STEPAF_LIBRARY PYTHONDONTWRITEBYTECODE
example=$top_srcdir/examples/python/push_pull.py
exchange=$top_srcdir/examples/python/torch_exchange.py
limit="timeout -k 10 ${TEST_TIMEOUT_S:-300}"

# expect WANTED NAME COMMAND [ARGUMENT...]: the command's output is what is wanted.
expect()
{
    wanted=$1 name=$2
    shift 2
    said=$("$@") || { echo "$name: exit code $?: $said"; exit 1; }
    [ "$said" = "$wanted" ] || { echo "$name: $said"; exit 1; }
    echo "$name: as expected"
}

# alone PROGRAM RANKS: start the ranks one by one; the first one's output is what counts.
alone()
{
    STEPAF_LOCAL_SIZE=$2 STEPAF_LOCAL_JOB=examples-$$
    export STEPAF_LOCAL_SIZE STEPAF_LOCAL_JOB
    others=
    rank=1
    while [ $rank -lt "$2" ]; do
        STEPAF_LOCAL_RANK=$rank $limit "$PYTHON" "$1" >/dev/null &
        others="$others $!"
        rank=$((rank + 1))
    done
    STEPAF_LOCAL_RANK=0 $limit "$PYTHON" "$1" || return
    for other in $others; do
        wait "$other" || return
    done
}

STEPAF_SPLIT=attn=1,ffn=1
export STEPAF_SPLIT
expect 42.0 "alone" alone "$example" 2
unset STEPAF_LOCAL_SIZE STEPAF_LOCAL_JOB
if [ -n "${HAVE_MPI:-}" ] && command -v "$mpiexec" >/dev/null; then
    if [ -n "${HAVE_PMIX:-}" ] && [ -z "$mpiexec_lacks_pmix" ]; then
        expect 42.0 "by PMIx" mpi_run 2 "$PYTHON" "$example"
    fi
    STEPAF_BOOT=mpi
    export STEPAF_BOOT
    expect 42.0 "by MPI" mpi_run 2 "$PYTHON" "$example"
    unset STEPAF_BOOT
fi
if "$PYTHON" -c 'import torch' 2>/dev/null; then
    STEPAF_SPLIT=attn=1,ffn=2
    expect 'layer 0: 1, 2
layer 1: 2, 4
layer 2: 3, 6' "torch" alone "$exchange" 3
else
    echo "without torch_exchange.py: torch is not installed"
fi
