#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# env.sh's mpi_start as a command.
here=$(cd "$(dirname "$0")" && pwd) || exit 99
top_srcdir=${top_srcdir:-$here/../..}
. "$here/env.sh"
mpi_start "$@"
