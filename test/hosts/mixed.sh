#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All programs over three hosts: shared memory within each, TCP between. Ranks are forked and move to the hosts,
# as in tcp.sh; by mpirun are jobs that depend on the launcher.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
hosts_enter "$@"
hosts_need_mpirun
hosts_up 3 || exit 99
jobs=$top_srcdir/test/mpi/programs.jobs
grep -Ev '# launcher$|^[0-9]* hotpath' "$jobs" | sed 's/^dies /fork /' >/run/forked.jobs
grep -E '# launcher$|^STEPAF_SPLIT=' "$jobs" >/run/launched.jobs
case $("$HOSTS_MPIEXEC" --version) in
*"(Open MPI) "[1-4].*) ;;
*"(Open MPI) "*)
    echo "ranks that die under mpirun: not tried, MPI itself ends those on other hosts (\"Socket closed\")"
    sed -i '/^dies /d' /run/launched.jobs
    ;;
esac
TEST_LAUNCH=fork TEST_HOSTS=h1,h1,h2,h2,h3,h3 hosts_jobs /run/forked.jobs && hosts_jobs /run/launched.jobs &&
    hosts_check
