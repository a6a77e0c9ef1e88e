# SPDX-License-Identifier: Apache-2.0
# Sourced by mpi_launch/quickstart and test/run: Debian and Ubuntu packages, installed only if
# missing.

packages_build="gcc libc6-dev make autoconf automake libtool pkg-config openmpi-bin libopenmpi-dev \
libhwloc-dev libibverbs-dev libjansson-dev libopenblas-dev libpmix-dev librdmacm-dev"
packages_test="g++ libcunit1-dev hostname iproute2 util-linux procps \
slurmd slurmctld slurm-client slurm-wlm-basic-plugins munge valgrind"
# For test/vm: the machine, what it is made with, and what runs in it.
packages_vm="qemu-system-x86 busybox-static cpio kmod zstd xz-utils binutils iproute2 rdma-core \
ibverbs-providers ibverbs-utils rdmacm-utils perftest"
packages_lint="clang-format-14 clang-tidy-14"

# packages_missing PACKAGE...: print those that are not installed.
packages_missing()
{
    for package; do
        case $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) in
        *"ok installed") ;;
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
