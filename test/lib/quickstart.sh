#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What quickstart looks for and says, without a build: help; whose packages it names on which system; an
# MPI that is in no path. The systems are made up; what is missing is missing in a PATH of our own.
set -u
: "${top_srcdir:=.}"
top=$(cd "$top_srcdir" && pwd) || exit 99
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0

fail()
{
    echo "FAILED: $*"
    failed=1
}

for option in -h --help; do
    "$top/mpi_launch/quickstart" $option >"$directory/out" 2>&1 || fail "quickstart $option: exit code $?"
    grep -q 'quickstart \[-h|--help\] \[CONFIGURE-ARGUMENT...\]' "$directory/out" || fail "no usage in $option"
    [ "$(wc -l <"$directory/out")" -lt 20 ] || fail "$option is more than its help"
done
"$top/mpi_launch/quickstart" attn 2>"$directory/out" && fail "quickstart takes any word"
grep -q 'attn is not an argument of configure' "$directory/out" || fail "quickstart does not say what it does not take"

# on ID ID_LIKE VERSION: such a system, without dpkg, without anything that the build needs but sh's tools.
bin=$directory/bin
mkdir "$bin"
for tool in sed tr; do
    ln -s "$(command -v $tool)" "$bin/$tool"
done
on()
{
    printf 'ID=%s\nID_LIKE="%s"\nVERSION_ID="%s"\n' "$1" "$2" "$3" >"$directory/os-release"
    env -i PATH="$bin" PACKAGES_OS_RELEASE="$directory/os-release" PACKAGES_MPI_PREFIXES="$directory/mpi" \
        ${settings:-} /bin/sh -c 'top=$1; shift; . "$top/build-aux/packages.sh"
        packages_for_build "$@"; status=$?; echo "mpi: $packages_mpi"; echo "$packages_advice"; exit $status' \
        sh "$top" $arguments >"$directory/out" 2>&1
}

# says LINE: in the advice.
says()
{
    grep -qxF -- "    $1" "$directory/out" || {
        cat "$directory/out"
        fail "it does not say: $1"
    }
}
settings=
arguments=
tools="make"
[ -x "$top/configure" ] || tools="make autoconf automake libtool"
on fedora "" 41 && fail "nothing is there, and it would build"
says "sudo dnf install gcc $tools pkgconf-pkg-config openmpi-devel hwloc-devel libsodium-devel jansson-devel openblas-devel rdma-core-devel libfabric-devel ucx-devel pmix-devel"
on rocky "rhel centos fedora" 9.4
says "sudo dnf install epel-release && sudo dnf install --enablerepo=crb gcc $tools pkgconf-pkg-config openmpi-devel hwloc-devel libsodium-devel jansson-devel openblas-devel rdma-core-devel libfabric-devel ucx-devel pmix-devel"
on rocky "rhel centos fedora" 8.10
says "sudo dnf install epel-release && sudo dnf install --enablerepo=powertools gcc $tools pkgconf-pkg-config openmpi-devel hwloc-devel libsodium-devel jansson-devel openblas-devel rdma-core-devel libfabric-devel ucx-devel pmix-devel"
on opensuse-leap "suse opensuse" 15.6
says "sudo zypper install gcc glibc-devel $tools pkg-config openmpi4 openmpi4-devel hwloc-devel libsodium-devel libjansson-devel openblas-devel rdma-core-devel libfabric-devel libucx-devel pmix-devel"

# What is there is not asked for, whoever has put it there: a compiler that finds the headers, an MPI in
# no path, one in a prefix.
printf '#!/bin/sh\nexit 0\n' >"$bin/gcc"
for tool in make pkg-config autoreconf automake libtoolize; do
    ln -s gcc "$bin/$tool"
done
chmod +x "$bin/gcc"
on fedora "" 41 && fail "there is no MPI, and it would build"
says "sudo dnf install openmpi-devel"
arguments=--with-mpi=/opt/mpi
on fedora "" 41 || fail "an MPI that was named is asked for"
arguments=
settings=MPICC=/opt/mpi/bin/mpicc
on fedora "" 41 || fail "MPICC is not enough"
settings=
mkdir -p "$directory/mpi/bin"
cp "$bin/gcc" "$directory/mpi/bin/mpicc"
on fedora "" 41 || fail "an MPI in its prefix is not found"
grep -qx "mpi: $directory/mpi" "$directory/out" || fail "the MPI's prefix is not what it takes"
cp "$bin/gcc" "$bin/mpicc"
on fedora "" 41 || fail "an MPI in the path is not found"
grep -qx "mpi: " "$directory/out" || fail "an MPI in the path needs no prefix"
exit $failed
