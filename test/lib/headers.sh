# SPDX-License-Identifier: Apache-2.0
# Sourced by headers_c.sh and headers_cxx.sh: each public header compiles alone, twice, without a
# warning. check_headers COMPILER EXTENSION STANDARD...
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"

# MPI's own headers are not ours to warn about.
mpi_flags=$(echo " ${MPI_CFLAGS:-}" | sed 's/ -I/ -isystem /g')

check_headers()
{
    compiler=$1
    extension=$2
    shift 2
    directory=$(mktemp -d) || exit 99
    trap 'rm -rf "$directory"' EXIT
    checked=0
    failed=0
    if [ -n "${headers_of_cxx:-}" ]; then
        set -- "$@" -- "$top_srcdir"/include/stepaf/*.hpp "$top_srcdir"/include/stepaf/cxx/*.hpp
    else
        set -- "$@" -- "$top_srcdir"/include/stepaf/*.h "$top_builddir"/include/stepaf/version.h
    fi
    standards=
    while [ "$1" != -- ]; do
        standards="$standards $1"
        shift
    done
    shift
    for header; do
        name=${header#*/include/stepaf/}
        case $name in
        mpi.h*) [ -n "${HAVE_MPI:-}" ] || continue ;;
        esac
        printf '#include <stepaf/%s>\n#include <stepaf/%s>\nextern int x;\n' "$name" "$name" \
            >"$directory/alone.$extension"
        for standard in $standards; do
            checked=$((checked + 1))
            # shellcheck disable=SC2086
            $compiler -std="$standard" -fsyntax-only -Wall -Wextra -Wpedantic -Werror \
                -I"$top_builddir/include" -I"$top_srcdir/include" $mpi_flags \
                "$directory/alone.$extension" && continue
            echo "stepaf/$name does not compile alone as $standard"
            failed=$((failed + 1))
        done
    done
    echo "$checked compilations, $failed failed"
    [ "$checked" -gt 0 ] && [ "$failed" -eq 0 ]
}
