#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the headers declare as STEPAF_API, what the version maps list and what the libraries export
# is the same.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}" "${NM:=nm}"
headers=$top_srcdir/include/stepaf
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0

# declared HEADER...: the functions after STEPAF_API, directives and comments left out.
declared()
{
    cat "$@" | sed '/^ *#/d' | tr '\n' ' ' | sed 's@/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/@ @g' |
        grep -o 'STEPAF_API [^;{]*' | grep -o 'stepaf_[a-z0-9_]* *(' | tr -d ' (' | sort -u
}

# mapped MAP: the names that a version script makes global.
mapped()
{
    sed -n '/^global:/,/^local:/s/^ *\(stepaf_[a-z0-9_]*\);$/\1/p' "$1" | sort
}

# exported LIBRARY: its defined dynamic symbols, the version nodes' own apart.
exported()
{
    $NM -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort
}

compare()
{
    if ! diff "$directory/$1" "$directory/$2" >"$directory/diff"; then
        echo "$3: < $1 has it, > $2 has it:"
        grep '^[<>]' "$directory/diff"
        failed=1
    fi
}

# check LIBRARY MAP HEADER...
check()
{
    library=$1
    mapped "$2" >"$directory/map"
    shift 2
    declared "$@" >"$directory/headers"
    exported "$top_builddir/.libs/$library.so" >"$directory/library"
    [ -s "$directory/headers" ] || { echo "$library: no function found in the headers"; failed=1; }
    compare headers map "$library"
    compare map library "$library"
    echo "$library: $(wc -l <"$directory/map") functions"
}

others=$(find "$headers" -name '*.h' ! -name mpi.h ! -name pmix.h ! -name version.h)
# shellcheck disable=SC2086
check libstepaf "$top_srcdir/src/libstepaf.map" $others "$top_builddir/include/stepaf/version.h"
if [ -n "${HAVE_MPI:-}" ]; then
    check libstepaf_mpi "$top_srcdir/mpi_launch/libstepaf_mpi.map" "$headers/mpi.h"
fi
if [ -n "${HAVE_PMIX:-}" ]; then
    check libstepaf_pmix "$top_srcdir/mpi_launch/libstepaf_pmix.map" "$headers/pmix.h"
fi
exit $failed
