#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The programs in README.md and docs/plans.md are examples/push_pull.c and examples/hello.c; they compile as they
# stand there, and print what is said of them. So does examples/microbatches.c.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}" "${CC:=cc}"
. "$top_srcdir/test/mpi/env.sh"
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
split2=STEPAF_SPLIT=attn=1,ffn=1
split3=STEPAF_SPLIT=attn=1,ffn=2

# extract DOCUMENT NAME COMMAND: the document's C program, and what follows the command that starts it.
extract()
{
    awk '/^```/ { inside = $0 == "```c"; next } inside' "$top_srcdir/$1" >"$directory/$2.c"
    awk -v command="\$ $3" \
        '/^```/ { inside = 0 } inside { print } $0 == command { inside = 1 }' \
        "$top_srcdir/$1" >"$directory/$2.said"
    if ! diff "$top_srcdir/examples/$2.c" "$directory/$2.c"; then
        echo "$1 and examples/$2.c differ"
        exit 1
    fi
    [ -s "$directory/$2.said" ] || { echo "$1 does not say what $2 prints"; exit 1; }
}

extract README.md push_pull "$split2 mpirun -n 2 ./push_pull"
extract docs/plans.md hello "$split3 mpirun -n 3 ./hello"

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
for program in push_pull hello microbatches; do
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

program=push_pull
run 2 "${split2#*=}"
diff "$directory/push_pull.said" "$directory/printed" || exit 1

program=hello
run 3 "${split3#*=}"
diff "$directory/hello.said" "$directory/printed" || exit 1
run 4 attn=2,ffn=2
sort "$directory/printed" >"$directory/sorted"
cat "$directory/hello.said" "$directory/hello.said" | sort | diff - "$directory/sorted" || exit 1
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
echo "the programs in README.md and docs/plans.md do what these say"
