#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Jobs of test/mpi that depend on the launcher, on one node of a real Slurm.
export SRUN_NODES=1
exec sh "${top_srcdir:-.}/test/slurm/every.sh"
