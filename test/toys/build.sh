#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Add the toys to a copy of the sources, as src/transport/README.md and src/device/README.md say, and build it,
# configured as $top_builddir is: build.sh [PROGRAM...]
#
# Each toy may touch no more than a directory of its own, one line of its registry, and one of
# src/Makefile.inc, which automake needs. The build is $top_builddir/test/toys/work/build; what is there is used
# again while nothing has changed. Exit code 77, with the reason: this cannot be built here.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
toys=$(cd "$top_srcdir/test/toys" && pwd) || exit 99
top=$(cd "$top_srcdir" && pwd) || exit 99
made=$(cd "$top_builddir" && pwd) || exit 99
. "$top/build-aux/build.sh"
work=$made/test/toys/work
tree=$work/tree
build=$work/build
dirs="bench build-aux cmake debian docs examples include m4 man mpi_launch packaging python src test tools"
files="Makefile.am Makefile.in VERSION aclocal.m4 config.h.in configure configure.ac"
# An outer make's options and variables are not for this one.
unset MAKEFLAGS MFLAGS MAKELEVEL

fail()
{
    echo "FAILED: $*"
    exit 1
}

# copy: the sources, without what a build in them has left. Times are kept, so that nothing is made anew.
copy()
{
    rm -rf "$tree"
    mkdir -p "$tree"
    # shellcheck disable=SC2086
    (cd "$top" && tar -cf - --exclude=test/toys/work --exclude='*.o' \
        --exclude='*.lo' --exclude='*.la' --exclude=.libs --exclude=.deps --exclude=.dirstamp \
        $files $dirs) | tar -xf - -C "$tree" || fail "no copy of the sources"
    chmod -R u+w "$tree"
}

# sums: of all files of the copy.
sums() { (cd "$tree" && find . -type f -exec cksum {} + | sort -k 3); }

# keep: how things are, before a toy is added.
keep()
{
    sums >"$work/before"
    rm -rf "$work/kept"
    mkdir "$work/kept"
    cp "$tree/src/Makefile.inc" "$tree/src/transport/registry.def" "$work/kept/"
    cp "$tree/src/device/registry.def" "$work/kept/device.def"
}

# one_more KEPT FILE: whether FILE is KEPT and one line.
one_more()
{
    diff "$work/kept/$1" "$tree/$2" >"$work/lines"
    [ "$(grep -c '^[<>]' "$work/lines")" -eq 1 ] && grep -q '^>' "$work/lines"
}

# touches_more DIRECTORY KEPT REGISTRY: print what has been touched beyond what a toy may; 0 if there is any.
touches_more()
{
    {
        sums | diff "$work/before" - | sed -n 's,^[<>] [0-9]* [0-9]* \./,,p' | sort -u |
            grep -v -e "^$1/" -e "^$3\$" -e '^src/Makefile\.inc$'
        one_more "$2" "$3" || echo "$3: not by one line"
        one_more Makefile.inc src/Makefile.inc || echo "src/Makefile.inc: not by one line"
    } | grep .
}

# add PATCH DIRECTORY KEPT REGISTRY FILE...: a toy.
add()
{
    patch=$1
    directory=$2
    kept=$3
    registry=$4
    shift 4
    keep
    mkdir "$tree/$directory" && cp "$@" "$tree/$directory/" || exit 99
    (cd "$tree" && patch --no-backup-if-mismatch -s -p1) <"$toys/$patch" || fail "$patch does not apply"
    ! touches_more "$directory" "$kept" "$registry" || fail "$patch touches more than it may"
    plant "$directory" "$kept" "$registry"
}

# plant DIRECTORY KEPT REGISTRY: what touches_more is there to find, is found.
plant()
{
    for file in "$3" src/Makefile.inc src/core/ctx.h src/new.c; do
        cp "$tree/$file" "$work/planted" 2>/dev/null || rm -f "$work/planted"
        echo >>"$tree/$file"
        touches_more "$@" >/dev/null || fail "a second line in $file goes unnoticed"
        if [ -e "$work/planted" ]; then
            cp "$work/planted" "$tree/$file"
        else
            rm "$tree/$file"
        fi
    done
    ! touches_more "$@" || fail "what was planted is still there"
}

# is_new: whether nothing that it is made of has changed since the last build.
is_new()
{
    # shellcheck disable=SC2086
    [ -e "$work/built" ] && [ -z "$(cd "$top" && find $files include m4 mpi_launch src test/mpi \
        test/toys/build.sh test/toys/device* test/toys/stream.c test/toys/transport* \
        test/unit/cpu_device tools -type f -newer "$work/built" | head -n 1)" ]
}

# configure: as the other build is, without what the toys have no use for. Speed does not matter.
# shellcheck disable=SC2120
configure()
{
    eval "set -- $("$made/config.status" --config)"
    rm -rf "$build"
    mkdir "$build"
    (cd "$build" && "$tree/configure" -q "$@" --without-cuda --without-openblas --without-jansson \
        --without-ofi --without-pmix --without-ucx --disable-dependency-tracking CFLAGS=-O0) || fail configure
}

# Whoever builds from a tarball may have no automake, or another one than it was made with.
automake=$(sed -n 's/^AUTOMAKE = .* //p' "$made/Makefile")
for tool in "$automake" patch; do
    "$tool" --version >/dev/null 2>&1 || { echo "SKIP: no $tool"; exit 77; }
done
mkdir -p "$work"
if ! is_new; then
    rm -f "$work/built"
    copy
    add transport.patch src/transport/toy registry.def src/transport/registry.def \
        "$toys"/transport/*
    add device.patch src/device/cpu device.def src/device/registry.def "$toys"/device/* \
        "$top"/test/unit/cpu_device/*
    top_srcdir=$tree sh "$tree/test/lib/layers.sh" || fail "includes of the toys"
    (cd "$tree" && "$automake") || fail "$automake"
    # shellcheck disable=SC2119
    configure
    touch "$work/built"
fi
make -s -C "$build" -j2 LIBTOOL="sh $tree/test/libtool.sh" stepaf_info test/toys/stream "$@" || fail make
