#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What test/mpi/run.sh takes for mpirun, so that its jobs run on SRUN_NODES nodes of a cluster:
# srun.sh -n N PROGRAM [ARGUMENT...] [: -n N PROGRAM [ARGUMENT...]]
#
# A rank that ends badly takes no other with it, so that all can say what they have to say.
set -u
[ "$1" != --version ] || exec srun --version
srun="srun --mpi=pmix --kill-on-bad-exit=0"
case " $* " in
*" : "*) ;;
*)
    ranks=$2
    shift 2
    nodes=$SRUN_NODES
    [ "$ranks" -ge "$nodes" ] || nodes=$ranks
    exec $srun -N "$nodes" -n "$ranks" "$@"
    ;;
esac

# Several programs: a line for each, behind the numbers of its ranks.
list=$SLURM_TEST_DIRECTORY/programs
total=0
: >"$list"
while [ $# -gt 0 ]; do
    printf '%d-%d' $total $((total + $2 - 1)) >>"$list"
    total=$((total + $2))
    shift 2
    while [ $# -gt 0 ] && [ "$1" != : ]; do
        printf ' %s' "$1" >>"$list"
        shift
    done
    echo >>"$list"
    [ $# -eq 0 ] || shift
done
exec $srun -N "$SRUN_NODES" -n $total --multi-prog "$list"
