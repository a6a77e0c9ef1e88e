#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Build EasyBuild's recipe of a tarball, and try the module: easybuild.sh TARBALL DIRECTORY
#
# With the system's compiler and MPI, and its packages in place of the recipe's dependencies: to build a toolchain
# takes hours. EasyBuild comes by pip into DIRECTORY, if it is not installed; Lmod is Debian's. Prints a line for
# each step.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -eq 2 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
tarball=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
mkdir -p "$2" && work=$(cd "$2" && pwd) || exit 1
root=$work/prefix/software
. "$top/test/packages/common.sh"
lmod=/usr/share/lmod/lmod/init/sh
[ -r $lmod ] || missing easybuild "Lmod (package lmod)"
rm -rf "$work/prefix"
mkdir -p "$work/sources"
cp "$tarball" "$work/sources" || exit 1
if ! command -v eb >/dev/null; then
    { python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q easybuild; } >"$work/step.log" 2>&1 ||
        missing easybuild "EasyBuild (pip install easybuild)"
    export PATH="$work/venv/bin:$PATH" EB_PYTHON="$work/venv/bin/python3"
fi
# Not Lmod's own strictness.
set +u
. $lmod
set -u

build()
{
    eb "$top/packaging/easybuild/libstepaf.eb" --prefix="$work/prefix" --sourcepath="$work/sources" --modules-tool=Lmod \
        --try-toolchain=system,system --disable-map-toolchains \
        --filter-deps=hwloc,libsodium,Jansson,PMIx,libfabric,UCX,OpenBLAS,pkgconf --parallel="$(nproc)" \
        $([ "$(id -u)" -ne 0 ] || echo --allow-use-as-root-and-accept-consequences)
}

exchange()
{
    module use "$work/prefix/modules/all" && module load libstepaf || return
    cc -o "$work/push_pull" "$top/examples/push_pull.c" $(pkg-config --cflags --libs libstepaf_mpi ompi-c) || return
    ldd "$work/push_pull" | grep -q "$root/libstepaf/.*/libstepaf.so" &&
        STEPAF_SPLIT=attn=1,ffn=1 timeout 60 mpirun --oversubscribe -n 2 "$work/push_pull" | grep -qx 42
}

try "easybuild: eb, with its own checks" build || exit 1
if command -v mpirun >/dev/null; then
    try "easybuild: program and exchange" exchange
else
    step SKIP "easybuild: program and exchange: mpirun is not installed"
fi
exit $failed
