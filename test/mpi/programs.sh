#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# programs.jobs, the list that other launchers and several hosts run, has every program that is here.
set -u
here=${top_srcdir:-.}/test/mpi
missing=0
for source in $(grep -l '^int main(' "$here"/*.c); do
    program=$(basename "$source" .c)
    case $program in
    answers_streams) continue ;; # GPUs that are made of memory take ranks that are forked
    trespass) continue ;; # it forks its ranks, and takes RDMA devices: test/vm
    chaos | halts | verdict) continue ;; # they fork processes; of several hosts chaos has a test: test/hosts/chaos.sh
    esac
    grep -Eq "^(mpmd [0-9]+|dies)? ?[0-9]+ $program( |\$)" "$here/programs.jobs" && continue
    echo "test/mpi/programs.jobs has no job of $program"
    missing=1
done
exit $missing
