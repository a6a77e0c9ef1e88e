#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stepaf.hpp costs nothing over C: the same loops in C and in C++ call the library with the same
# arguments, and take the same number of instructions, or one more, counted by callgrind, by each compiler
# that is there, as C++17, 20 and 23. Results instead of exceptions store a status beside each value: an instruction each.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
flags="-O2 -I$top_builddir/include -I$top_srcdir/include"
sources=$top_srcdir/test/cxx
failed=0
compilers=0
if ! command -v valgrind >/dev/null; then
    echo "skipped: valgrind is not installed"
    exit 77
fi

# compile CXX STANDARD: the loops in C++, and their machine code as text; false if they do not know the standard.
compile()
{
    # shellcheck disable=SC2086
    if ! {
        $1 -std="$2" $flags -c "$sources/cost_cxx.cc" -o "$directory/cost_cxx.o" &&
            $1 -std="$2" -fno-exceptions $flags -c "$sources/cost_try.cc" -o "$directory/cost_try.o"
    } 2>"$directory/errors"; then
        knows "$1" "$2" || return
        cat "$directory/errors"
        exit 1
    fi
    for part in cxx try; do
        objdump -dr "$directory/cost_$part.o" || exit 1
    done >"$directory/code.$2"
}

# knows CXX STANDARD: also the library that comes with it, as clang 14 does not know that of gcc 13 beyond C++17. Asked where
# something does not compile: it takes as long as a program.
knows() { printf '#include <%s>\n' chrono string | $1 -std="$2" -x c++ -fsyntax-only - 2>/dev/null; }

# all_standards CC CXX: count C++17, and the later ones where their code is another.
all_standards()
{
    rm -f "$directory"/code.*
    # shellcheck disable=SC2086
    $1 $flags -c "$sources/cost_c.c" -o "$directory/cost_c.o" &&
        $1 $flags -c "$sources/cost_main.c" -o "$directory/cost_main.o" || exit 1
    for standard in c++17 c++20 c++2b; do
        if ! compile "$2" $standard; then
            echo "$2 $standard: it cannot be compiled"
            continue
        fi
        if [ $standard != c++17 ] && cmp -s "$directory/code.c++17" "$directory/code.$standard"; then
            echo "$2 $standard: the same machine code"
        else
            count "$2" $standard
        fi
    done
}

# count CXX STANDARD: a table of instructions for each operation.
count()
{
    $1 -o "$directory/cost" "$directory"/cost_*.o || exit 1
    rm -f "$directory"/counts*
    if ! timeout -k 10 120 valgrind --tool=callgrind --callgrind-out-file="$directory/counts" \
        --toggle-collect='counted_*' --dump-after=counts_end \
        "$directory/cost" >"$directory/labels" 2>"$directory/log"; then
        cat "$directory/log"
        exit 1
    fi
    # The n-th dump is of the n-th line.
    n=0
    while read -r language step operations; do
        n=$((n + 1))
        echo "$language $step $operations $(sed -n 's/^summary: //p' "$directory/counts.$n" | head -n 1)"
    done <"$directory/labels" >"$directory/table"
    awk -v compiler="$1 $2" '
        BEGIN {
            # What may come on top of C: an instruction that gcc 13 adds; of a result, the status beside
            # each value; of an owner in an array, the look whether it holds something.
            more["cxx", "start_wait"] = more["cxx", "start_with"] = 1
            more["cxx", "recv_respond"] = more["cxx", "respond_request"] = 1
            more["try", "start_wait"] = more["try", "start_with"] = 1
            more["try", "recv_respond"] = 2
            more["try", "respond_request"] = 3
            more["cxx", "microbatches"] = more["try", "microbatches"] = 1 # an address that gcc computes apart
            more["cxx", "owned"] = 5
            more["try", "owned"] = 11
        }
        { of[$1, $2] = $4 / $3; if ($1 == "c") step[++n] = $2 }
        function judge(language, s)
        {
            # What comes once, before and after the loop, is spread over its turns.
            if (of[language, s] > of["c", s] + more[language, s] + 0.2 || of[language, s] < 10) {
                print "FAILED: " s ", " language
                failed = 1
            }
        }
        END {
            if (n == 0)
                exit 1
            printf "%-16s %-16s %8s %8s %8s\n", compiler, "", "C", "C++", "try_"
            for (i = 1; i <= n; i++) {
                s = step[i]
                printf "%-16s %-16s %8.2f %8.2f %8.2f\n", "", s, of["c", s], of["cxx", s], of["try", s]
                judge("cxx", s)
                judge("try", s)
            }
            exit failed
        }' "$directory/table" || failed=1
    compilers=$((compilers + 1))
}

for pair in gcc:g++ clang:clang++ clang-14:clang++-14; do
    cc=${pair%:*} cxx=${pair#*:}
    command -v "$cc" >/dev/null && command -v "$cxx" >/dev/null || continue
    [ "$cc" = clang ] && [ -n "$(command -v clang++-14)" ] && continue
    all_standards "$cc" "$cxx"
done
if [ $compilers -eq 0 ]; then
    echo "skipped: neither gcc and g++ nor clang and clang++ are installed"
    exit 77
fi
exit $failed
