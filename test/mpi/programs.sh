#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# programs.jobs, the list that other launchers and several hosts run, has every program that is here.
set -u
here=${top_srcdir:-.}/test/mpi
missing=0
for source in $(grep -l '^int main(' "$here"/*.c); do
    program=$(basename "$source" .c)
    [ "$program" = trespass ] && continue # it forks its ranks, and takes RDMA devices: test/vm
    grep -Eq "^(mpmd [0-9]+|dies)? ?[0-9]+ $program( |\$)" "$here/programs.jobs" && continue
    echo "test/mpi/programs.jobs has no job of $program"
    missing=1
done
exit $missing
