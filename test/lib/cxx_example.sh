#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The C++ programs in examples/ and in stepaf_cxx(7) compile without a warning, and print what they should.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
. "$top_srcdir/test/mpi/env.sh"
skip()
{
    echo "skipped: $1"
    exit 77
}
[ -n "${TEST_CXX:-}" ] || skip "configure has found no C++ compiler"
[ -n "${HAVE_MPI:-}" ] || skip "configure has found no MPI"
command -v "$mpiexec" >/dev/null || skip "$mpiexec is not installed"
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
libraries=$(cd "$top_builddir/.libs" && pwd) || exit 99
# MPI's own headers are not ours to warn about.
mpi_flags=$(echo " ${MPI_CFLAGS:-}" | sed 's/ -I/ -isystem /g')

# example FILE RANKS SPLIT: compile and run it; what it prints is compared with standard input.
example()
{
    # shellcheck disable=SC2086
    $TEST_CXX -std=c++17 -O0 -Wall -Wextra -Wpedantic -Werror -I"$top_builddir/include" \
        -I"$top_srcdir/include" $mpi_flags "$1" -o "$directory/program" \
        -L"$libraries" -Wl,-rpath,"$libraries" -lstepaf_mpi -lstepaf ${MPI_LIBS:-} || exit 1
    STEPAF_SPLIT=$3 mpi_run "$2" "$directory/program" >"$directory/printed" || {
        echo "$1: exit code $?"
        exit 1
    }
    diff - "$directory/printed" || exit 1
}

echo 42 | example "$top_srcdir/examples/push_pull.cc" 2 attn=1,ffn=1
example "$top_srcdir/examples/af_tensor.cc" 3 attn=1,ffn=2 <<'printed'
layer 0: server 0 made 10
layer 0: server 1 made 20
layer 1: server 0 made 11
layer 1: server 1 made 22
printed
sed -n '/^\.\\" program/,/^\.EE/p' "$top_srcdir/man/stepaf_cxx.7" |
    sed '/^\./d; s/\\-/-/g; s/\\e/\\/g' >"$directory/manual.cc"
[ -s "$directory/manual.cc" ] || { echo "stepaf_cxx.7 has no program"; exit 1; }
printf 'layer 0: 2\nlayer 1: 4\nlayer 2: 6\n' | example "$directory/manual.cc" 2 attn=1,ffn=1

# The manual's own line links its program. A stand-in for pkg-config names the libraries of this build.
line=$(sed -n '/program\.cc/{s/\\-/-/g;p;}' "$top_srcdir/man/stepaf_cxx.7")
case $line in
mpicxx\ *) ;;
*) echo "stepaf_cxx.7: \"$line\" does not link MPI"; exit 1 ;;
esac
if command -v mpicxx >/dev/null; then
    includes=$(cd "$top_builddir/include" && pwd) sources=$(cd "$top_srcdir/include" && pwd)
    cat >"$directory/pkg-config" <<END
#!/bin/sh
echo "-I$includes -I$sources -L$libraries -Wl,-rpath,$libraries -lstepaf_mpi -lstepaf"
END
    chmod +x "$directory/pkg-config"
    mv "$directory/manual.cc" "$directory/program.cc"
    (cd "$directory" && PATH=$directory:$PATH sh -c "$line -o by_line") || { echo "stepaf_cxx.7: $line: FAILED"; exit 1; }
fi
