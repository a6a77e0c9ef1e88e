#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All programs over three hosts: shared memory within each, TCP between.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
hosts_enter "$@"
hosts_need_mpirun
hosts_up 3 || exit 99
hosts_jobs "$top_srcdir/test/mpi/programs.jobs" && hosts_check
