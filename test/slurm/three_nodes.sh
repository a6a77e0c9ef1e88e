#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Jobs of test/mpi that depend on the launcher, on three nodes of a real Slurm.
export SRUN_NODES=3
exec sh "${top_srcdir:-.}/test/slurm/every.sh"
