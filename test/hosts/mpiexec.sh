#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What test/mpi/run.sh takes for mpirun, so that its jobs run on several hosts.
. "$(dirname "$0")/hosts.sh"
[ "$1" != --version ] || exec "$HOSTS_MPIEXEC" --version
hosts_mpirun "$HOSTS_SPEC" --map-by node --bind-to none "$@"
