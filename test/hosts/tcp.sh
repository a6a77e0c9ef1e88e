#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All programs over three hosts, by TCP alone. Ranks are forked and move to the hosts, since mpirun over three of
# them takes more time than most programs do. Left to mixed.sh, which has mpirun, are jobs whose ranks die, which
# take somebody who lets the others live (over TCP alone: test/mpi/tcp_semantics); bad_init, whose ranks say on
# which host they are; and programs that start ranks themselves.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
hosts_enter "$@"
hosts_need_mpirun
hosts_up 3 || exit 99
export STEPAF_TRANSPORTS=tcp
grep -Ev '^dies |^[0-9]* (bad_init|startup|hotpath)' "$top_srcdir/test/mpi/programs.jobs" >/run/forked.jobs
TEST_LAUNCH=fork hosts_jobs /run/forked.jobs && hosts_check
