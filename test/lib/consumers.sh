#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Programs are built and run against an installation by each way that users have: pkg-config, CMake and
# Meson, as C and C++, shared and static, by gcc and clang, with link-time optimization. The installation
# is one in DESTDIR, moved to another place. Then it is uninstalled, and nothing is left. With TEST_LIGHT one
# compiler does.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
if [ -n "${SANITIZERS:-}" ]; then
    echo "skipped: a sanitizer's libraries are not for programs without"
    exit 77
fi
top_srcdir=$(cd "$top_srcdir" && pwd)
top_builddir=$(cd "$top_builddir" && pwd)
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
log=$directory/log
failed=0
cells=0
version=$(sed -n 's/^version=//p' "$top_srcdir/VERSION")

. "$top_srcdir/test/lib/staged.sh"
# As a user's own flags they would be for this build.
unset CFLAGS CXXFLAGS LDFLAGS CC CXX

# An archive beside it: of the library's own objects, which --disable-static has not archived.
mkdir "$directory/objects"
[ -e "$lib/libstepaf.a" ] || {
    cp "$top_builddir/.libs/libstepaf_core.a" "$lib/libstepaf.a"
    for kind in mpi pmix; do
        [ ! -e "$lib/libstepaf_$kind.so" ] ||
            ar cr "$lib/libstepaf_$kind.a" "$top_builddir"/mpi_launch/.libs/libstepaf_${kind}_la-*.o
    done
}

# cell WAY COMPILER COMMAND...: build what the command builds, $directory/consumer, and run it.
cell()
{
    way=$1 with=$2
    shift 2
    cells=$((cells + 1))
    rm -f "$directory/consumer"
    if ! "$@" >"$log" 2>&1; then
        result=FAILED
    elif ! "$directory/consumer" >"$log" 2>&1; then
        result="FAILED to run"
    else
        result=ok
    fi
    printf '%-34s %-12s %s\n' "$way" "$with" "$result"
    [ "$result" = ok ] && return
    tail -n 20 "$log"
    failed=1
}

# by_pkg_config COMPILER SOURCE MODULE STATIC [FLAG...]; STATIC: --static, or empty
by_pkg_config()
{
    compiler=$1 source=$2 module=$3 static=$4
    shift 4
    [ "$(pkg-config --modversion "$module")" = "$version" ] || return
    # shellcheck disable=SC2046,SC2086
    set -- "$top_srcdir/test/lib/$source" "$@" -o "$directory/consumer" \
        $(pkg-config --cflags "$module") \
        $(pkg-config $static --libs "$module" |
            if [ -n "$static" ]; then sed 's/-l\(stepaf[a-z_]*\)/-l:lib\1.a/g'; else cat; fi)
    echo "$compiler $*"
    # shellcheck disable=SC2086
    $compiler "$@"
}

# built NAME: what CMake or Meson has made becomes the consumer; an archive's is not to need the library.
built()
{
    cp "$directory/build/$1" "$directory/consumer" || return
    case $1 in
    *static*) ! ldd "$directory/consumer" | grep libstepaf ;;
    esac
}

# links COMPILER: whether -flto links here; clang wants a plugin of the linker's.
links_lto() { echo 'int main(void) { return 0; }' | $1 -flto -x c - -o "$directory/lto" 2>/dev/null; }

# links_static COMPILER: whether what hwloc and libsodium say for archives links here. Debian's hwloc names
# libudev, and does not depend on its package.
links_static()
{
    # shellcheck disable=SC2046
    echo 'int main(void) { return 0; }' |
        $1 -x c - -o "$directory/static" $(pkg-config --static --libs hwloc libsodium) 2>/dev/null
}
skip_static=

# snippet LANGUAGE N: the N-th block of docs/install.md in a language.
snippet()
{
    awk -v fence="\`\`\`$1" -v wanted="$2" '/^```/ { inside = $0 == fence; n += inside; next } inside && n == wanted' \
        "$top_srcdir/docs/install.md"
}

have_mpi=
[ -z "${HAVE_MPI:-}" ] || [ ! -e "$lib/libstepaf_mpi.so" ] || have_mpi=1
have_pmix=
[ ! -e "$lib/libstepaf_pmix.so" ] || have_pmix=1
cp "$top_srcdir/test/lib/consumer.c" "$top_srcdir/test/lib/consumer.cc" "$directory"

# What CMake is shown: the document's program, and one for each further way.
mkdir "$directory/cmake"
{
    snippet cmake 1
    cat <<'cmake'
enable_language(CXX)
set_target_properties(consumer PROPERTIES INTERPROCEDURAL_OPTIMIZATION ${LTO})
add_executable(consumer_static consumer.c)
target_link_libraries(consumer_static stepaf::stepaf_static)
add_executable(consumer_cxx consumer.cc)
target_compile_features(consumer_cxx PRIVATE cxx_std_17)
target_link_libraries(consumer_cxx stepaf::stepaf)
find_package(stepaf 0.2.0...<1 REQUIRED COMPONENTS ${KINDS})
foreach(kind IN LISTS KINDS)
    string(TOUPPER ${kind} KIND)
    foreach(archive "" _static)
        add_executable(consumer_${kind}${archive} consumer.c)
        target_compile_definitions(consumer_${kind}${archive} PRIVATE CONSUMER_OF_${KIND})
        target_link_libraries(consumer_${kind}${archive} stepaf::${kind}${archive})
    endforeach()
endforeach()
foreach(wrong 0.1 0.3 1.0)
    find_package(stepaf ${wrong} QUIET)
    if(stepaf_FOUND)
        message(FATAL_ERROR "version ${wrong} is not what there is")
    endif()
endforeach()
find_package(stepaf 0.2 QUIET COMPONENTS nonsense)
if(stepaf_FOUND AND NOT stepaf_nonsense_FOUND STREQUAL FALSE)
    message(FATAL_ERROR "there is no component of that name")
endif()
cmake
} >"$directory/cmake/CMakeLists.txt"
cp "$directory"/consumer.c* "$directory/cmake"
mkdir "$directory/meson"
{
    snippet meson 1
    cat <<'meson'
executable('consumer_static', 'consumer.c',
           dependencies: dependency('libstepaf', static: true))
meson
} >"$directory/meson/meson.build"
cp "$directory/consumer.c" "$directory/meson"

# cmake_all LTO KINDS: configure and build the project.
cmake_all()
{
    rm -rf "$directory/build"
    cmake -S "$directory/cmake" -B "$directory/build" -DCMAKE_PREFIX_PATH="$directory/moved" \
        -DLTO="$1" -DKINDS="$2" && cmake --build "$directory/build" -j2
}

clang=clang:clang++
command -v clang >/dev/null || clang=clang-14:clang++-14
for pair in gcc:g++ $clang; do
    CC=${pair%:*} CXX=${pair#*:}
    command -v "$CC" >/dev/null && command -v "$CXX" >/dev/null || {
        echo "$CC: not installed"
        continue
    }
    export CC CXX
    lto=OFF
    cell "pkg-config" $CC by_pkg_config $CC consumer.c libstepaf ""
    links_static $CC || skip_static="pkg-config --static hwloc libsodium does not link here"
    [ -n "$skip_static" ] || cell "pkg-config --static" $CC by_pkg_config $CC consumer.c libstepaf --static
    cell "pkg-config, C++17" $CXX by_pkg_config "$CXX -std=c++17" consumer.cc libstepaf ""
    if links_lto $CC; then
        lto=ON
        cell "pkg-config, -flto" $CC by_pkg_config $CC consumer.c libstepaf "" -flto
        cell "pkg-config, C++17, -flto" $CXX by_pkg_config "$CXX -std=c++17" consumer.cc libstepaf "" -flto
    else
        echo "$CC: -flto does not link here, with or without this library"
    fi
    if [ -n "$have_mpi" ]; then
        # shellcheck disable=SC2086
        cell "pkg-config, MPI" $CC by_pkg_config "$CC ${MPI_CFLAGS:-}" consumer.c libstepaf_mpi "" \
            -DCONSUMER_OF_MPI ${MPI_LIBS:-}
    fi
    if [ -n "$have_pmix" ]; then
        cell "pkg-config, PMIx" $CC by_pkg_config $CC consumer.c libstepaf_pmix "" -DCONSUMER_OF_PMIX
    fi
    kinds=
    [ -z "$have_mpi" ] || kinds=mpi
    [ -z "$have_pmix" ] || kinds=$kinds${kinds:+;}pmix
    if ! command -v cmake >/dev/null; then
        echo "CMake: not installed"
    elif cmake_all $lto "$kinds" >"$directory/cmake.log" 2>&1; then
        for target in consumer consumer_static consumer_cxx \
            $(echo "$kinds" | sed 's/\([a-z]\{1,\}\);\{0,1\}/consumer_\1 consumer_\1_static /g'); do
            cell "CMake, $target" $CC built "$target"
        done
    else
        echo "CMake, $CC: FAILED"
        tail -n 30 "$directory/cmake.log"
        failed=1
    fi
    if ! command -v meson >/dev/null || ! command -v ninja >/dev/null; then
        echo "Meson: not installed"
    else
        rm -rf "$directory/build"
        [ -z "$skip_static" ] || snippet meson 1 >"$directory/meson/meson.build"
        if meson setup "$directory/build" "$directory/meson" >"$directory/meson.log" 2>&1 &&
            ninja -C "$directory/build" >>"$directory/meson.log" 2>&1; then
            cell "Meson" $CC built consumer
            [ -n "$skip_static" ] || cell "Meson, static" $CC built consumer_static
        else
            echo "Meson, $CC: FAILED"
            tail -n 20 "$directory/meson.log"
            failed=1
        fi
    fi
    [ -z "${TEST_LIGHT:-}" ] || break
done
[ -z "$skip_static" ] || echo "static, by pkg-config and Meson: not tried: $skip_static"

make_in uninstall DESTDIR="$directory/staged" || failed=1
left=$(find "$directory/staged" ! -type d)
[ -z "$left" ] || {
    echo "make uninstall has left: $left"
    failed=1
}
echo "$cells programs"
exit $failed
