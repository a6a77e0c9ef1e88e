#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes, and uses of symbols, point down: from room to room of src, and within each from file to file, as
# layers.list has them. One transport does not know another, nor one device; a library is included in the one
# place that wraps it; and the programs see the public headers only, but for stepaf-run, which shares what
# src/topo knows of a machine, and writes that do not wait. Then what is not so is planted, and has to be found.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}" "${NM:=nm}" "${CC:=cc}"
lib=$top_srcdir/test/lib
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0

# find_facts SOURCES BUILD: what layers.awk judges.
find_facts()
{
    (cd "$1" && find include src mpi_launch tools bench -name '*.[ch]' -o -name '*.def' -o \
        -name '*.in' -path '*/stepaf/*' | sort | xargs awk '
            FNR == 1 { print "file", FILENAME }
            /^[ \t]*#[ \t]*include/ {
                quote = index($0, "\"") ? "\"" : "<"
                gsub(/^[^<"]*[<"]|[>"].*/, "")
                print "include", FILENAME, FNR, $0, quote
            }')
    # shellcheck disable=SC2086
    (cd "$2" && find src -name 'libstepaf_core_la-*.o' | sort | xargs $NM -A -P -g)
}

# judge LIST FACTS
judge()
{
    awk -f "$lib/layers.awk" "$1" "$2" >"$directory/verdict"
    status=$?
    sort "$directory/verdict"
    return $status
}

find_facts "$top_srcdir" "$top_builddir" >"$directory/facts"
judge "$lib/layers.list" "$directory/facts" || failed=1

# ---- planted ----

tree=$directory/tree
mkdir "$tree"
n=0

# compile NAME TEXT: src/NAME.c gets the text as well.
compile()
{
    objects=$tree/src/$(dirname "$1")/.libs
    mkdir -p "$objects"
    printf '%s\n' "$2" >>"$tree/src/$1.c"
    $CC -c -I"$tree/src" -o "$objects/libstepaf_core_la-$(basename "$1").o" "$tree/src/$1.c" || failed=1
}

# plant FROM TO: FROM includes the header of TO, and uses a symbol of it.
plant()
{
    n=$((n + 1))
    mkdir -p "$tree/src/$(dirname "$2")"
    echo "void planted_$n(void);" >"$tree/src/$2.h"
    compile "$2" "void planted_$n(void) {}"
    compile "$1" "#include \"$2.h\"
void user_$n(void);
void user_$n(void) { planted_$n(); }"
}

plant base/log core/table
plant core/table core/start
plant transport/shm/shm transport/tcp/tcp
plant api/plan transport/tcp/tcp
plant planted/one base/log
echo >"$tree/src/core/planted.c"
{
    sed 's/^    map$/& planted/' "$lib/layers.list"
    echo "up base/log core/table: planted"
    echo "up core/start core/table: planted"
    echo "up core/planted core/gone: planted"
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        echo "up core/gone_$i core/table: planted"
    done
    echo "in src/gone"
    echo "    nothing"
} >"$directory/list"
{
    cat "$directory/facts"
    find_facts "$tree" "$tree" 2>/dev/null
} >"$directory/planted"
judge "$directory/list" "$directory/planted" >"$directory/found" && failed=1
while read -r line; do
    if ! grep -Fq "$line" "$directory/found"; then
        echo "planted, and not found: $line"
        failed=1
    fi
done <<EOF
src/base/log.c:1: core/table.h points up, from base to core
src/base/log.c: planted_1 points up, from base to core
src/core/table.c:2: core/start.h points up, from core/table to core/start
src/core/table.c: planted_2 points up, from core/table to core/start
src/transport/shm/shm.c:1: transport/tcp/tcp.h: transport/shm and transport/tcp stand side by side
src/transport/shm/shm.c: planted_3: transport/shm and transport/tcp stand side by side
src/api/plan.c:1: transport/tcp/tcp.h: what transport/tcp has is its own
src/api/plan.c: planted_4: what transport/tcp has is its own
src/core/planted.c: planted has no place in src/core of layers.list
layers.list: up base/log core/table: stays within a room, and says why
layers.list: up core/start core/table: there is no such use
layers.list: up core/planted core/gone: there is no such use
layers.list: src/gone has no nothing
layers.list: src/planted has no order
uses point up
EOF
exit $failed
