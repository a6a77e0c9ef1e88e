#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Build a tarball as a part of a CMake project, by docs/install.md's own words: subproject.sh TARBALL DIRECTORY
#
# The project's program is run against the library that it has built. Prints a line for each step.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -eq 2 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
tarball=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
mkdir -p "$2" && work=$(cd "$2" && pwd) || exit 1
root=$work
. "$top/test/packages/common.sh"
command -v cmake >/dev/null || missing "subproject" cmake
rm -rf "$work/engine" "$work/build" "$work/source"
mkdir "$work/engine" "$work/source"

project()
{
    tar xzf "$tarball" -C "$work/source" --strip-components=1 &&
        awk '/^```/ { inside = $0 == "```cmake"; n += inside; next } inside && n == 2' \
            "$top/docs/install.md" >"$work/engine/CMakeLists.txt" &&
        cp "$top/test/lib/consumer.c" "$work/engine" && [ -s "$work/engine/CMakeLists.txt" ]
}
build()
{
    cmake -S "$work/engine" -B "$work/build" -DSTEPAF_SOURCE="$work/source" &&
        env -u MAKEFLAGS -u MFLAGS cmake --build "$work/build" -j"$(nproc)"
}
run() { "$work/build/consumer" && ldd "$work/build/consumer" | grep "$work/build/stepaf/lib/libstepaf.so.1"; }

try "subproject: the document's project" project && try "subproject: build" build && try "subproject: run" run
exit $failed
