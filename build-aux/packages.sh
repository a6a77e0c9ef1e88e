# SPDX-License-Identifier: Apache-2.0
# Sourced by mpi_launch/quickstart and test/run: Debian and Ubuntu packages, installed only if
# missing.

packages_test="g++ libcunit1-dev hostname iproute2 patch util-linux procps \
python3-dev python3-matplotlib python3-pip python3-prometheus-client python3-pyte python3-setuptools python3-venv python3-wheel mypy \
slurmd slurmctld slurm-client slurm-wlm-basic-plugins munge valgrind \
abigail-tools cmake libudev-dev meson"
# For test/vm: the machine, what it is made with, and what runs in it.
packages_vm="qemu-system-x86 busybox-static cpio kmod zstd xz-utils binutils iproute2 rdma-core \
ibverbs-providers ibverbs-utils rdmacm-utils perftest"
# For test/roots: what fresh systems are made by.
packages_roots="debootstrap wget"
# For test/aarch64.
packages_aarch64="gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user-static debootstrap wget"
# For test/packages.
packages_packages="debhelper dh-python lintian rpm lmod python3-venv"
packages_lint="clang-format-14 clang-tidy-14"
# What looks at the pages of stepaf-report. Ubuntu has it as a snap only.
packages_browser="chromium"

# packages_missing PACKAGE...: print those that are not installed.
packages_missing()
{
    packages_there=" $(dpkg-query -W -f='${Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/.*ok installed //p' | tr '\n' ' ')"
    for package; do
        case $packages_there in
        *" $package "*) ;;
        *) printf '%s ' "$package" ;;
        esac
    done
}

# packages_install PACKAGE...: what dpkg does not have, apt-get fetches. 0 if all are there in the
# end; else 1, and packages_advice says what the user can do. Output goes to standard output.
packages_install()
{
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        packages_advice="this is neither Debian nor Ubuntu: install what these packages hold: $*"
        return 1
    fi
    missing=$(packages_missing "$@")
    [ -n "$missing" ] || return 0
    sudo=
    if [ "$(id -u)" -ne 0 ]; then
        sudo="sudo -n"
        if ! sudo -n true 2>/dev/null; then
            packages_advice="packages are missing, run: sudo apt-get install -y $missing"
            return 1
        fi
    fi
    packages_advice="apt-get has failed, try: ${sudo:+sudo }apt-get install -y $missing"
    # The lists may be stale or, in a fresh container, absent: fetch them if it fails without.
    # shellcheck disable=SC2086
    packages_apt $missing || { $sudo apt-get update && packages_apt $missing; }
}

packages_apt()
{
    $sudo env DEBIAN_FRONTEND=noninteractive \
        timeout -k 10 900 apt-get install -y --no-install-recommends "$@" </dev/null
}

# What quickstart's build cannot do without: what it is, and its packages on Debian and Ubuntu, on Fedora
# and Red Hat's kin, and on SUSE; several are joined by commas. "rdma", "fabric", "ucx" and "pmix" it can do without.
packages_table="\
cc         gcc,libc6-dev                gcc                  gcc,glibc-devel
make       make                         make                 make
autoconf   autoconf                     autoconf             autoconf
automake   automake                     automake             automake
libtool    libtool                      libtool              libtool
pkg-config pkg-config                   pkgconf-pkg-config   pkg-config
mpi        openmpi-bin,libopenmpi-dev   openmpi-devel        openmpi4,openmpi4-devel
hwloc      libhwloc-dev                 hwloc-devel          hwloc-devel
sodium     libsodium-dev                libsodium-devel      libsodium-devel
jansson    libjansson-dev               jansson-devel        libjansson-devel
openblas   libopenblas-dev              openblas-devel       openblas-devel
rdma       libibverbs-dev,librdmacm-dev rdma-core-devel      rdma-core-devel
fabric     libfabric-dev                libfabric-devel      libfabric-devel
ucx        libucx-dev                   ucx-devel            libucx-devel
pmix       libpmix-dev                  pmix-devel           pmix-devel"
# All of Debian's.
packages_build=$(echo "$packages_table" | while read -r _ debian _; do echo "$debian"; done | tr ',\n' '  ')

# packages_header HEADER MODULE WORD [CONFIGURE-ARGUMENT...]: whether the compiler finds it, or
# configure will, since it was told where.
packages_header()
{
    header=$1 module=$2 option=--with-$3=/
    shift 3
    case " $* " in
    *" $option"*) return 0 ;;
    esac
    # shellcheck disable=SC2046,SC2086
    echo "#include <$header>" | ${CC:-$packages_cc} ${CPPFLAGS:-} ${CFLAGS:-} \
        $(pkg-config --cflags "$module" 2>/dev/null) -E - >/dev/null 2>&1
}

# packages_find_mpi [CONFIGURE-ARGUMENT...]: whether there is one. packages_mpi is its prefix where
# configure would not find it by itself: Fedora's, Red Hat's and SUSE's are in PATH only after a
# "module load".
packages_find_mpi()
{
    packages_mpi=
    case " $* " in
    *" --with-mpi=/"* | *" MPICC="* | *" MPI_LIBS="*) return 0 ;;
    esac
    [ -z "${MPICC:-}${MPI_LIBS:-}" ] || return 0
    command -v mpicc && return
    for prefix in ${PACKAGES_MPI_PREFIXES:-/usr/lib64/openmpi /usr/lib64/mpich /usr/lib64/mpi/gcc/*}; do
        [ -x "$prefix/bin/mpicc" ] || continue
        packages_mpi=$prefix
        return 0
    done
    return 1
}

# packages_have THING [CONFIGURE-ARGUMENT...]: whether a thing of the table is there, whoever has put it
# there.
packages_have()
{
    thing=$1
    shift
    case $thing in
    cc) echo 'int main(void) { return 0; }' | ${CC:-$packages_cc} -x c -o /dev/null - 2>/dev/null ;;
    autoconf) [ -x "$top/configure" ] || command -v autoreconf ;;
    automake) [ -x "$top/configure" ] || command -v automake ;;
    libtool) [ -x "$top/configure" ] || command -v libtoolize ;;
    mpi) packages_find_mpi "$@" ;;
    hwloc) packages_header hwloc.h hwloc hwloc "$@" ;;
    sodium) packages_header sodium.h libsodium sodium "$@" ;;
    jansson) packages_header jansson.h jansson jansson "$@" ;;
    openblas) packages_header cblas.h openblas openblas "$@" ;;
    rdma) packages_header infiniband/verbs.h libibverbs verbs "$@" &&
        packages_header rdma/rdma_cma.h librdmacm rdmacm "$@" ;;
    fabric) packages_header rdma/fi_rma.h libfabric ofi "$@" ;;
    ucx) packages_header ucp/api/ucp.h ucx ucx "$@" ;;
    pmix) packages_header pmix.h pmix pmix "$@" ;;
    *) command -v "$thing" ;;
    esac >/dev/null
}

# packages_lacking [CONFIGURE-ARGUMENT...]: sets lacking, of the things of the table that are not there,
# and packages_optional, of those among them that can be done without.
packages_lacking()
{
    packages_cc=$(command -v gcc || command -v cc || command -v clang)
    lacking=
    packages_optional=
    for entry in $(echo "$packages_table" | sed 's/ .*//'); do
        packages_have "$entry" "$@" && continue
        case $entry in
        rdma | fabric | ucx | pmix) packages_optional="$packages_optional${packages_optional:+, }$entry" ;;
        *) lacking="$lacking $entry" ;;
        esac
    done
}

# packages_named COLUMN THING...: the packages of that column that hold the things.
packages_named()
{
    column=$1
    shift
    for thing; do
        echo "$packages_table" | while read -r name debian fedora suse; do
            [ "$name" = "$thing" ] || continue
            eval "echo \$$column"
        done
    done | tr ',\n' '  '
}

# packages_command THING...: how to install them here. Red Hat's kin have libsodium in EPEL.
packages_command()
{
    epel=
    case " $* " in
    *" sodium "*) epel="sudo dnf install epel-release && " ;;
    esac
    family=$( (. "${PACKAGES_OS_RELEASE:-/etc/os-release}" && echo "${ID:-} ${ID_LIKE:-} ${VERSION_ID:-}") 2>/dev/null)
    case " $family " in
    *" debian "* | *" ubuntu "*) echo "sudo apt-get install -y $(packages_named debian "$@")" ;;
    *" suse "* | *" opensuse"* | *" sles "*) echo "sudo zypper install $(packages_named suse "$@")" ;;
    *" fedora 8."*) echo "${epel}sudo dnf install --enablerepo=powertools $(packages_named fedora "$@")" ;;
    *" rhel "*) echo "${epel}sudo dnf install --enablerepo=crb $(packages_named fedora "$@")" ;;
    *" fedora "*) echo "sudo dnf install $(packages_named fedora "$@")" ;;
    *) echo "what Debian has in $(packages_named debian "$@")" ;;
    esac | sed 's/ *$//'
}

# packages_for_build [CONFIGURE-ARGUMENT...]: 0 if quickstart can build. What is missing it installs by
# apt-get, where that is; else packages_advice says how to.
packages_for_build()
{
    packages_lacking "$@"
    echo "missing:${lacking:- nothing}; can be done without: ${packages_optional:-nothing}"
    [ -n "$lacking" ] || return 0
    optional=$(echo "$packages_optional" | tr -d ,)
    if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
        # shellcheck disable=SC2046,SC2086
        packages_install $(packages_named debian $lacking $optional) || return
        packages_lacking "$@"
        [ -n "$lacking" ] || return 0
        packages_advice="still missing although its packages are there:$lacking"
        return 1
    fi
    # shellcheck disable=SC2086
    packages_advice="install what is missing:$lacking
    $(packages_command $lacking $optional)"
    return 1
}
