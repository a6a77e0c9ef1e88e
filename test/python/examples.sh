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
expect "all answers are right" "tasks, and who serves them" alone "$top_srcdir/examples/python/serve.py" 2
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
if ! "$PYTHON" -c 'import torch' 2>/dev/null; then
    echo "without torch_exchange.py: torch is not installed"
    exit 0
fi
STEPAF_SPLIT=attn=1,ffn=2 OMP_NUM_THREADS=1
export OMP_NUM_THREADS
answers='layer 0: 1, 2
layer 1: 2, 4
layer 2: 3, 6'
if "$PYTHON" -c 'import torch.distributed.run' 2>/dev/null; then
    unset STEPAF_LOCAL_SIZE STEPAF_LOCAL_JOB
    # shellcheck disable=SC2086
    expect "$answers" "torch, by torchrun" $limit "$PYTHON" -m torch.distributed.run --standalone \
        --nproc-per-node 3 "$exchange"
else
    expect "$answers" "torch" alone "$exchange" 3
fi
STEPAF_SPLIT=attn=2,ffn=2
expect "attention rank 0: 206 rows, as computed alone" "an engine with experts" \
    alone "$top_srcdir/examples/python/engine.py" 4
if ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
    STEPAF_SPLIT=attn=1,ffn=1
    expect 'replay 0: 4
replay 1: 6
replay 2: 8' "a graph" alone "$top_srcdir/examples/python/torch_graph.py" 2
else
    echo "without torch_graph.py: there is no /dev/nvidia0"
fi
