#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The C++ headers do what they say, between two ranks, as C++17, 20 and 23 by each compiler that is there,
# with every warning an error; without exceptions, too. Each function of the C API that they leave out is
# named here.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
if [ -z "${TEST_CXX:-}" ]; then
    echo "skipped: configure has found no C++ compiler"
    exit 77
fi
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
libraries=$(cd "$top_builddir/.libs" && pwd) || exit 99
failed=0
programs=0

# build_and_run NAME COMPILER STANDARD [FLAG...]; false if they do not know the standard.
build_and_run()
{
    name=$1 compiler=$2 standard=$3
    shift 3
    # shellcheck disable=SC2086
    if ! $compiler -std="$standard" -O2 "$@" -Wall -Wextra -Wpedantic -Wshadow -Wold-style-cast -Werror \
        -I"$top_builddir/include" -I"$top_srcdir/include" "$top_srcdir/test/cxx/$name.cc" \
        -o "$directory/$name" -L"$libraries" -Wl,-rpath,"$libraries" -lstepaf 2>"$directory/errors"; then
        knows "$compiler" "$standard" || return
        cat "$directory/errors"
        said="it does not compile"
    elif said=$(timeout -k 5 60 "$directory/$name" 2>&1); then
        programs=$((programs + 1))
        return 0
    fi
    echo "$name, $compiler -std=$standard $*: FAILED: $said"
    failed=1
}

# knows COMPILER STANDARD: also the library that comes with it, as clang 14 does not know that of gcc 13 beyond C++17. Asked
# where something does not compile: it takes as long as a program.
knows() { printf '#include <%s>\n' chrono string | $1 -std="$2" -x c++ -fsyntax-only - 2>/dev/null; }

compilers=
for compiler in "$TEST_CXX" g++ clang++ clang++-14; do
    command -v "${compiler%% *}" >/dev/null || continue
    version=$($compiler --version | head -n 1)
    case $compilers in
    *"$version"*) continue ;;
    esac
    compilers="$compilers $version"
    standards=
    for standard in c++17 c++20 c++23; do
        # By its number or by the name that it had before.
        if ! $compiler -std=$standard -x c++ -fsyntax-only /dev/null 2>/dev/null; then
            [ $standard = c++23 ] || continue
            standard=c++2b
        fi
        # Optimized once: what compiles by a later standard takes less time without.
        ! build_and_run api "$compiler" $standard ${standards:+-O0} || standards="$standards $standard"
    done
    build_and_run af "$compiler" c++17
    build_and_run plain "$compiler" c++17 -fno-exceptions -fno-rtti
    echo "$version:$standards"
done

# For these a program calls the C function, by get() where it takes a handle.
c_only=" stepaf_boot_advance stepaf_boot_local_attach stepaf_boot_local_create stepaf_boot_local_destroy stepaf_boot_open stepaf_boot_set_error \
stepaf_dtype_bytes stepaf_dtype_name stepaf_event_name stepaf_log_set_callback stepaf_map_check \
stepaf_phase_name stepaf_set_interrupt stepaf_status_name stepaf_trace_clear stepaf_trace_read stepaf_verdict_phase_name stepaf_verdict_read stepaf_version \
stepaf_init_mpi_world "
for function in $(sed -n 's/^ *\(stepaf_[a-z0-9_]*\);$/\1/p' "$top_srcdir/src/libstepaf.map" \
    "$top_srcdir"/mpi_launch/*.map); do
    if grep -q "[^a-z_]$function[^a-z_]" "$top_srcdir"/include/stepaf/*.hpp "$top_srcdir"/include/stepaf/cxx/*.hpp; then
        in=1
    else
        in=0
    fi
    case $in$c_only in
    1*" $function "*) echo "$function is in the C++ headers, and said not to be" ;;
    1* | 0*" $function "*) continue ;;
    *) echo "$function is not in the C++ headers" ;;
    esac
    failed=1
done
echo "$programs programs"
exit $failed
