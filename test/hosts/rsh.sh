#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What mpirun takes for a remote shell: rsh.sh HOST COMMAND...
. "$(dirname "$0")/hosts.sh"
host=$1
shift
hosts_run "$host" sh -c "$*"
