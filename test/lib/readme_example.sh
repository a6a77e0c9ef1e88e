#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The program in README.md is examples/hello.c; it compiles as it stands there, and prints what is
# said of it. So does examples/microbatches.c.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}" "${CC:=cc}"
. "$top_srcdir/test/mpi/env.sh"
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
split3=STEPAF_SPLIT=attn=1,ffn=2

# The first C program, and what follows the command that starts it on three ranks.
awk '/^```/ { if (inside) exit; inside = $0 == "```c"; next } inside' "$top_srcdir/README.md" \
    >"$directory/hello.c"
awk -v command="\$ $split3 mpirun -n 3 ./hello" \
    '/^```/ { inside = 0 } inside { print } $0 == command { inside = 1 }' \
    "$top_srcdir/README.md" >"$directory/said"
if ! diff "$top_srcdir/examples/hello.c" "$directory/hello.c"; then
    echo "README.md and examples/hello.c differ"
    exit 1
fi
[ -s "$directory/said" ] || { echo "README.md does not say what hello prints"; exit 1; }

skip()
{
    echo "skipped, after comparing the text: $1"
    exit 77
}
[ -n "${HAVE_MPI:-}" ] || skip "configure has found no MPI"
[ -z "${SANITIZERS:-}" ] || skip "sanitizers are not for programs under mpirun"
command -v "$mpiexec" >/dev/null || skip "$mpiexec is not installed"

libraries=$top_builddir/.libs
cp "$top_srcdir/examples/microbatches.c" "$directory"
for program in hello microbatches; do
    # shellcheck disable=SC2086
    $CC -Wall -Wextra -Werror -I"$top_builddir/include" -I"$top_srcdir/include" ${MPI_CFLAGS:-} \
        "$directory/$program.c" -o "$directory/$program" \
        -L"$libraries" -Wl,-rpath,"$libraries" -lstepaf_mpi -lstepaf ${MPI_LIBS:-} || exit 1
done

# run RANKS SPLIT: the output of $program, in the order of printing.
run()
{
    STEPAF_SPLIT=$2 mpi_run "$1" "$directory/$program" >"$directory/printed" || {
        echo "$program on $1 ranks: exit code $?"
        exit 1
    }
}

program=hello
run 3 "${split3#*=}"
diff "$directory/said" "$directory/printed" || exit 1
run 4 attn=2,ffn=2
sort "$directory/printed" >"$directory/sorted"
cat "$directory/said" "$directory/said" | sort | diff - "$directory/sorted" || exit 1
run 2 attn=1,ffn=1
grep -c 'FFN rank 0' "$directory/printed" | grep -qx 3 || exit 1

# printed_times FACTOR RANKS: what each of three layers makes of the four microbatches' number 7,
# from so many attention ranks.
printed_times()
{
    for m in 0 1 2 3; do
        for _ in $(seq "$2"); do
            echo "microbatch $m: $(((m * 1024 + 7) * $1 * $1 * $1))"
        done
    done | diff - "$directory/printed" || exit 1
}

program=microbatches
run 3 "${split3#*=}"
printed_times 3 1
run 4 attn=1,ffn=3
printed_times 6 1
run 4 attn=2,ffn=2
sort -o "$directory/printed" "$directory/printed"
printed_times 3 2
echo "README.md's program does what it says"
