# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154
# Sourced by what has to know which tests have more than one thread in a process: ThreadSanitizer sees nothing in others.

# How sources say so. The library's own thread is STEPAF_PROGRESS=thread, those that help it STEPAF_TCP_THREADS; a GPU that is
# made of memory has one for each stream.
makes_threads='pthread_create|ranks_expect_threads|PROGRESS", .*"thread"|(TCP_THREADS",|tcp_threads =) "[1-9]|cpu_device\.runs = true|include "(mpi/)?machine\.h"'

# program_has_threads PROGRAM: whether this program of test/mpi makes threads, by its main file or by PROGRAM_*.c, but for
# those of a PROGRAM_... that has a case of its own.
program_has_threads()
(
    set +f
    for thread_source in "$top_srcdir/test/mpi/$1.c" "$top_srcdir/test/mpi/$1"_*.c; do
        for thread_case in "$top_srcdir/test/mpi/$1"_*.case; do
            case $thread_source in
            "${thread_case%.case}"*) continue 2 ;;
            esac
        done
        ! grep -Eqs "$makes_threads" "$thread_source" || exit 0
    done
    exit 1
)
