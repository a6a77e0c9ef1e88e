#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Show that a change which only moves or renames is one: test/lib/same_code.sh OLD [NEW].
#
# Builds the library's objects at two commits (NEW: the work tree unless named) without debug
# information and without file names and line numbers, and compares every function's instructions.
# Names of functions and data are left out, since those may be what has changed. Prints how many
# functions there are and which differ; exits with 0 if none does. Needs git, objdump and what the
# build needs.
set -eu
top=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build NAME: configure and compile the tree in $work/NAME/tree.
build()
{
    mkdir "$work/$1/build"
    (
        cd "$work/$1/tree" && ./autogen.sh
        cd "$work/$1/build"
        ../tree/configure --without-mpi --without-pmix --without-jansson --without-openblas \
            --disable-dependency-tracking \
            CFLAGS="-O2 -g0 -ffunction-sections -Wno-builtin-macro-redefined -D__LINE__=0 -D__FILE__='\"\"'"
        # The GPU's kernels take long, and are none of these functions.
        if grep -q '^NVCC = .' Makefile; then
            kernels=$(sed -n 's/^\(src[^ ]*kernels\.fatbin\):.*/\1/p' Makefile)
            mkdir -p "${kernels%/*}"
            make -t "$kernels"
        fi
        make -j"$(nproc)" libstepaf_core.la
    ) >"$work/$1/log" 2>&1 || {
        tail -n 20 "$work/$1/log"
        exit 99
    }
}

# functions NAME: a line for each function: the sum of its instructions, and its name.
functions()
{
    find "$work/$1/build" -name 'libstepaf_core_la-*.o' -path '*/.libs/*' |
        xargs objdump -dr --no-show-raw-insn --no-addresses 2>/dev/null | awk '
        /^<.*>:$/ {
            name = substr($0, 2, length($0) - 3)
            sub(/\.(constprop|isra|part|cold).*/, "", name)
            print "@" name
            next
        }
        /^[ \t]*R_/ { print "R " $1; next }
        /^\t/ { gsub(/<[^>]*>/, "<>"); sub(/#.*/, ""); gsub(/[ \t]+/, " "); print }' |
        python3 -c '
import hashlib, sys
name, lines = None, []
def end():
    if name:
        print(hashlib.sha1("\n".join(lines).encode()).hexdigest()[:16], name)
for line in sys.stdin:
    line = line.rstrip("\n")
    if line.startswith("@"):
        end()
        name, lines = line[1:], []
    else:
        lines.append(line)
end()' | sort
}

mkdir "$work/old" "$work/new" "$work/old/tree" "$work/new/tree"
git -C "$top" archive "$1" | tar x -C "$work/old/tree"
if [ $# -gt 1 ]; then
    git -C "$top" archive "$2" | tar x -C "$work/new/tree"
else
    git -C "$top" ls-files -co --exclude-standard | (cd "$top" && xargs -d '\n' ls -d 2>/dev/null) |
        tar c -C "$top" -T - | tar x -C "$work/new/tree"
fi
build old
build new
functions old >"$work/old.txt"
functions new >"$work/new.txt"
cut -d' ' -f1 "$work/old.txt" | sort >"$work/old.sums"
cut -d' ' -f1 "$work/new.txt" | sort >"$work/new.sums"
comm -23 "$work/old.sums" "$work/new.sums" | sort -u | join - "$work/old.txt" | sed 's/^[^ ]* /old: /'
comm -13 "$work/old.sums" "$work/new.sums" | sort -u | join - "$work/new.txt" | sed 's/^[^ ]* /new: /'
same=$(comm -12 "$work/old.sums" "$work/new.sums" | wc -l)
echo "$(wc -l <"$work/old.sums") functions before, $(wc -l <"$work/new.sums") after, $same the same"
[ "$same" -eq "$(wc -l <"$work/old.sums")" ] && [ "$same" -eq "$(wc -l <"$work/new.sums")" ]
