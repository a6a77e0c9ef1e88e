# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Sourced by tests whose programs srun starts: it does so by PMIx, of which MPICH and its like know nothing unless they
# were built with it. stepaf_init then says that MPI sees each rank alone.
if (. "$top_srcdir/test/mpi/env.sh"; [ -n "$mpiexec_lacks_pmix" ]); then
    echo "skipped: ${MPIEXEC:-mpirun} is of HYDRA, whose MPI has no PMIx as a rule: srun could not start its programs"
    exit 77
fi
