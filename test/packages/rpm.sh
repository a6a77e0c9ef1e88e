#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make RPM packages of a tarball, and try them: rpm.sh TARBALL DIRECTORY [RPMBUILD-ARGUMENT...]
#
# rpmbuild, an installation into a root of its own in DIRECTORY, README's first program built against that and
# run on two ranks, an erasure, after which nothing is left. Prints a line for each step. Elsewhere than on
# Red Hat's kin, and its database of packages does not know what is there: --nodeps.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 2 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
tarball=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
mkdir -p "$2" && work=$(cd "$2" && pwd) || exit 1
shift 2
root=$work/root
. "$top/test/packages/common.sh"
command -v rpmbuild >/dev/null || missing rpm "rpmbuild (package rpm)"
version=$(sed -n 's/^version=//p' "$top/VERSION")
rm -rf "$root" "$work/RPMS" "$work/BUILD" "$work/BUILDROOT"
nodeps=
grep -q '^ID_LIKE=.*\(rhel\|fedora\)\|^ID=fedora' /etc/os-release || nodeps=--nodeps

# shellcheck disable=SC2086
build() { rpmbuild -tb $nodeps --define "_topdir $work" "$@" "$tarball"; }
in_root() { rpm --root "$root" --dbpath /var/lib/rpm "$@"; }
install()
{
    mkdir -p "$root/var/lib/rpm" && in_root --initdb &&
        in_root --nodeps --noscripts --nosignature -i "$work"/RPMS/*/*.rpm
}
erase() { in_root --nodeps --noscripts -e $(in_root -qa --qf '%{NAME}\n' | grep stepaf) && nothing_left; }
complete()
{
    for package in libstepaf libstepaf-mpi libstepaf-pmix libstepaf-devel stepaf-tools; do
        [ -e "$(echo "$work/RPMS"/*/"$package-$version"-1*.rpm)" ] || { echo "no $package"; return 1; }
    done
}

try "rpm: rpmbuild" build "$@" && try "rpm: the packages" complete || exit 1
if try "rpm: install" install; then
    try "rpm: no modulefile" no_module
    if command -v mpirun >/dev/null; then
        try "rpm: program and exchange" consumer "$(rpm --eval '%{_libdir}')"
    else
        step SKIP "rpm: program and exchange: mpirun is not installed"
    fi
    try "rpm: erase, and nothing is left" erase
fi
exit $failed
