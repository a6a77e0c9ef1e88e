#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Real Slurm: the jobs of jobs.sh on a cluster of three nodes that lives for this test.
set -u
: "${top_srcdir:=.}"
[ -z "${SANITIZERS:-}" ] || { echo "sanitizer builds fork their ranks: see test/mpi"; exit 77; }
. "$top_srcdir/test/slurm/mpi.sh"
exec sh "$top_srcdir/test/slurm/cluster.sh" 3 sh "$top_srcdir/test/slurm/jobs.sh"
