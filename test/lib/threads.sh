#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What ThreadSanitizer is to see is in the lists thread_unit_tests and thread_cases: unit tests that make
# threads, themselves or by a header of theirs, and cases with the library's threads or with programs that
# make some. Those of MPI, under mpirun, do not count.
set -u
cd "${top_srcdir:-.}/test" || exit 99
top_srcdir=..
. ./mpi/has_threads.sh
found=0
failed=0

# listed MAKEFILE: what its lists have.
listed() { awk '/^thread_/ { on = 1 } on { print } !/\\$/ { on = 0 }' "$1"; }

# need TEST: it has to be listed in its directory.
need()
{
    found=$((found + 1))
    listed "$(dirname "$1")/Makefile.inc" | grep -Eq "/$(basename "$1")( |\$)" && return
    echo "test/$1 has threads, and is not in a list for ThreadSanitizer of its directory's Makefile.inc"
    failed=1
}

for test in $(find unit -name 'test_*.c' | sort); do
    files=$test
    for header in $(sed -n 's/^#include "\([a-z_/]*\)\.h"$/\1/p' "$test"); do
        # What these offer is not what everybody takes.
        case $header in
        ranks) ;;
        *)
            for base in "$(dirname "$test")/$header" "unit/$header"; do
                files="$files $(ls "$base.h" "$base.c" 2>/dev/null)"
            done
            ;;
        esac
    done
    # shellcheck disable=SC2086
    ! grep -Eq "$makes_threads" $files || need "${test%.c}"
done
programs=none
for program in $(ls mpi/*.c | sed 's,.*/\(.*\)\.c$,\1,'); do
    ! program_has_threads "$program" || programs="$programs|$program"
done
for case in mpi/*.case; do
    # What these libraries do ThreadSanitizer does not see, and takes for races.
    ! grep -Eqx 'ofi|ucx' "$case" || continue
    ! grep -Eq "^STEPAF_PROGRESS=thread|^STEPAF_TCP_THREADS=|^fork [0-9]+ ($programs) " "$case" || need "$case"
done
echo "$found tests with threads"
[ $found -gt 0 ] && exit $failed
