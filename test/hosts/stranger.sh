#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Strangers besiege the ports of a job on three hosts.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
hosts_enter "$@"
hosts_need_mpirun
hosts_up 3 || exit 99
# Outside of the range that the kernel takes ports from by itself.
export STEPAF_NET_PORTS=27110-27139
hosts_jobs "$top_srcdir/test/hosts/stranger.jobs" && hosts_check
