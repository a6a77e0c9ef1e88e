#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One step of a newcomer's in a fresh system, whose root user runs it: inside.sh STEP. The source tree is
# /src. The last line says what was there and what came out; exit code 77 skips.
set -u
cd /src || exit 99
export DEBIAN_FRONTEND=noninteractive
. ./build-aux/packages.sh

# what: system, compiler, MPI.
what()
{
    . /etc/os-release
    echo "$PRETTY_NAME, gcc $(gcc -dumpfullversion), $(./build/stepaf_info |
        sed -n 's/^mpi  *yes (\(.*\))$/\1/p')"
}

# first_steps: README's, by whoever calls; neither warnings nor errors on the way, and the lines that are
# printed to go on with do when pasted.
first_steps()
{
    ./mpi_launch/quickstart >/tmp/said 2>&1
    status=$?
    cat /tmp/said
    [ $status -eq 0 ] || return $status
    if grep -n ' warning: ' build/build.log; then
        echo "the build warns"
        return 1
    fi
    sed -n '/^Next, /,$s/^  //p' /tmp/said >/tmp/lines
    [ "$(wc -l </tmp/lines)" -eq 3 ] || { echo "there are no lines to go on with"; return 1; }
    timeout 900 sh -ex /tmp/lines
}

# hello MPICC MPIRUN: install, and the program of docs/plans.md, as it says there.
hello()
{
    make -C build install >/tmp/install.log 2>&1 || { cat /tmp/install.log; return 1; }
    ldconfig
    directory=$(mktemp -d) || return
    awk -v command='$ STEPAF_SPLIT=attn=1,ffn=2 mpirun -n 3 ./hello' \
        '/^```/ { inside = 0 } inside { print } $0 == command { inside = 1 }' docs/plans.md >"$directory/said"
    cp examples/hello.c "$directory"
    make_tester && chown -R tester "$directory" || return
    su tester -c "cd $directory && $1 -o hello hello.c \$(pkg-config --cflags --libs libstepaf_mpi) &&
        STEPAF_SPLIT=attn=1,ffn=2 $2 -n 3 ./hello >printed" || return
    [ -s "$directory/said" ] && diff "$directory/said" "$directory/printed" && rm -r "$directory"
}

# oversubscribe MPIRUN: where it counts cores, it is told not to.
oversubscribe()
{
    case $($1 --version 2>&1) in
    *"Open MPI"*) echo "$1 --oversubscribe" ;;
    *) echo "$1" ;;
    esac
}

# suite [VARIABLE=VALUE]...: the plain one, or ROOTS_TESTS.
suite()
{
    # shellcheck disable=SC2086
    if [ -z "${ROOTS_TESTS:-}" ]; then
        env "$@" ./test/run -o "/src/build-test" check
        return
    fi
    packages_install $packages_test >/tmp/packages-test.log 2>&1 || cat /tmp/packages-test.log
    mkdir -p build-some && cd build-some || return
    env "$@" ../configure --enable-werror >configure.log 2>&1 && make -j"$(nproc)" >make.log 2>&1 ||
        { tail -n 40 configure.log make.log; return 1; }
    make -k check TESTS="$ROOTS_TESTS" >check.log 2>&1
    status=$?
    cat check.log
    sed -n 's/^# \(PASS\|FAIL\|SKIP\|ERROR\): */\1 /p' check.log | tr '\n' ' '
    echo "of the tests named"
    return $status
}

# Who has no rights; each step may be the first.
make_tester() { [ -d /home/tester ] || useradd -m tester; }

# build_packages: Debian's, of what "make dist" makes, by what dpkg-checkbuilddeps asks for.
build_packages()
{
    rm -rf /tmp/dist /tmp/packages && mkdir /tmp/dist /tmp/packages || return
    # shellcheck disable=SC2086
    packages_install $packages_build dpkg-dev debhelper || return
    [ -x configure ] || ./autogen.sh || return
    (cd /tmp/dist && /src/configure && make dist && tar -C /tmp/packages -xzf libstepaf-*.tar.gz) || return
    cd /tmp/packages/libstepaf-* || return
    apt-get build-dep -y --no-install-recommends ./ &&
        DEB_BUILD_OPTIONS="parallel=$(nproc)" dpkg-buildpackage -us -uc -b
}

# use_packages: by a user: the program of docs/plans.md, built by what is installed, and its exchange.
use_packages()
{
    make_tester || return
    directory=$(mktemp -d) || return
    awk -v command='$ STEPAF_SPLIT=attn=1,ffn=2 mpirun -n 3 ./hello' \
        '/^```/ { inside = 0 } inside { print } $0 == command { inside = 1 }' /src/docs/plans.md >"$directory/said"
    zcat -f /usr/share/doc/libstepaf-dev/examples/hello.c* >"$directory/hello.c"
    chown -R tester "$directory"
    su tester -c "cd $directory && mpicc -o hello hello.c \$(pkg-config --cflags --libs libstepaf_mpi) &&
        STEPAF_SPLIT=attn=1,ffn=2 $(oversubscribe mpirun) -n 3 ./hello >printed && stepaf_info --version && python3 -m stepaf" || return
    [ -s "$directory/said" ] && diff "$directory/said" "$directory/printed" && rm -r "$directory"
}

# all_packages: install, use, purge; nothing that has the project's name is left, nor what the packages had.
all_packages()
{
    build_packages || return
    cd / || return
    names=$(for deb in /tmp/packages/*.deb; do dpkg-deb -f "$deb" Package; done | grep -v dbgsym)
    apt-get install -y --no-install-recommends $(ls /tmp/packages/*.deb | grep -v dbgsym) || return
    # shellcheck disable=SC2086
    dpkg -L $names | sort -u | while read -r path; do
        [ -d "$path" ] || echo "$path"
    done >/tmp/had
    use_packages || return
    # shellcheck disable=SC2086
    apt-get purge -y $names || return
    {
        while read -r path; do
            [ ! -e "$path" ] || echo "$path"
        done </tmp/had
        find / -xdev -name '*stepaf*' ! -path '/src/*' ! -path '/tmp/*' ! -path '/proc/*'
    } >/tmp/left
    [ ! -s /tmp/left ] || { echo "left behind:"; cat /tmp/left; return 1; }
    what_system="$(. /etc/os-release && echo "$PRETTY_NAME")"
    echo "$what_system: $(echo "$names" | wc -l) packages with $(wc -l </tmp/had) files built, installed, used, purged; none is left"
}

case $1 in
quickstart)
    make_tester || exit
    first_steps && what
    ;;
user)
    # Nothing is missing now, so no rights are needed.
    make_tester && chown -R tester /src && rm -f /tmp/said && su tester -c ./mpi_launch/quickstart &&
        echo "quickstart without root, nothing missing"
    ;;
hello)
    hello mpicc "$(oversubscribe mpirun)" && what
    ;;
mpich)
    apt-get install -y --no-install-recommends mpich libmpich-dev || exit
    export MPICC=mpicc.mpich
    first_steps && what | grep MPICH
    ;;
mpich-hello)
    hello mpicc.mpich mpirun.mpich && what
    ;;
packages)
    all_packages
    ;;
suite)
    suite
    ;;
whole)
    # All that README's test command does: sanitizers, the guest with RDMA devices, the tarball.
    ./test/run -o /src/build-test
    ;;
mpich-suite)
    rm -rf build-test build-some
    suite MPICC=mpicc.mpich
    ;;
*)
    echo "there is no step $1"
    exit 99
    ;;
esac
