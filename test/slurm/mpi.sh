# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Sourced by tests whose programs srun starts: it does so by PMIx, of which MPICH and its like know nothing unless they
# were built with it. stepaf_init then says that MPI sees each rank alone.
if (. "$top_srcdir/test/mpi/env.sh"; [ -n "$mpiexec_lacks_pmix" ]); then
    echo "skipped: ${MPIEXEC:-mpirun} has no PMIx, by which srun would start programs of this MPI"
    exit 77
fi
