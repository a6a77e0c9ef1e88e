#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every program of test/mpi on three nodes of a real Slurm.
export SRUN_NODES=3
exec sh "${top_srcdir:-.}/test/slurm/every.sh"
