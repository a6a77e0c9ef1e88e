#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Real Slurm: what depends on the launcher, of test/mpi's programs, on SRUN_NODES nodes, one or three; shared
# memory within a node, TCP between.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
slurm=$top_srcdir/test/slurm
[ -z "${SANITIZERS:-}" ] || { echo "sanitizer builds fork their ranks: see test/mpi"; exit 77; }
. "$top_srcdir/test/slurm/mpi.sh"
if [ -z "${SLURM_TEST_DIRECTORY:-}" ]; then
    exec sh "$slurm/cluster.sh" 3 sh "$slurm/every.sh"
fi

# On the cluster. What run.sh asks: see there.
export MPIEXEC="$slurm/srun.sh" TEST_KILLED=137 TEST_ROLES=1
export TEST_TIMEOUT_S=60
unset OMPI_MCA_pml OMPI_MCA_btl # jobs have several nodes
export TEST_ONE_NETWORK=1 # all nodes are this machine
export STEPAF_NET_IF=lo STEPAF_TRANSPORTS=shm,tcp
said=$SLURM_TEST_DIRECTORY/said
# How soon a death is noticed test/mpi/fault.case knows. Here daemons of Slurm are beside ranks that outnumber the cores: one
# of 14 runs took 111 ms, where the program allows 100.
case $SRUN_NODES in
1) launched='# launcher(, node)?$' ;;
*) launched='# launcher$' ;;
esac
grep -E "$launched|^STEPAF_SPLIT=" "$top_srcdir/test/mpi/programs.jobs" |
    sed 's/^\(dies [0-9]* fault [^#]*\)/\1--notice-ms 1000 /' >"$SLURM_TEST_DIRECTORY/launched.jobs"
# Open MPI 5 ends a rank, by MPI_ERR_UNKNOWN (14), that is in a collective, as in a commit or a barrier, and sees the end of
# its TCP connection to a dead one (mca_pml_ob1_error_handler). OMPI_MCA_mpi_ft_enable=1 is no way out: then it tells PMIx
# of the death, and Slurm ends the step.
case $SRUN_NODES-$("$top_builddir/stepaf_info" | grep '^mpi ') in
1-* | *"Open MPI "[1-4].*) ;;
*"Open MPI "*)
    echo "ranks that die while others commit or are in a barrier: not tried, Open MPI itself ends those on other nodes"
    sed -i '/^dies .* survive /d; /^dies .* --case commit/d; /^dies .* --case barrier/d' "$SLURM_TEST_DIRECTORY/launched.jobs"
    ;;
esac
sh "$top_srcdir/test/mpi/run.sh" "$SLURM_TEST_DIRECTORY/launched.jobs" >"$said" 2>&1
code=$?
cat "$said"
# None of them may be skipped.
[ $code -eq 0 ] && ! grep -q SKIP "$said"
