#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make Debian's packages of a tarball, and try them: debian.sh TARBALL DIRECTORY
#
# dpkg-buildpackage, lintian, an installation into a root of its own in DIRECTORY, README's first program
# built against that and run on two ranks, the same in Python, a purge, after which nothing is left. Prints a line for
# each step.
# The packages stay in DIRECTORY. What dpkg-checkbuilddeps misses is to be installed before.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -eq 2 ] || { sed -n '3s/^# //p' "$0" >&2; exit 2; }
tarball=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
mkdir -p "$2" && work=$(cd "$2" && pwd) || exit 1
root=$work/root
. "$top/test/packages/common.sh"
for tool in dpkg-buildpackage dh; do
    command -v "$tool" >/dev/null || missing debian "$tool (packages dpkg-dev, debhelper)"
done
version=$(sed -n 's/^version=//p' "$top/VERSION")
source=$work/libstepaf-$version
rm -rf "$source" "$root" "$work"/*.deb

unpack()
{
    tar xzf "$tarball" -C "$work" && cp "$tarball" "$work/libstepaf_$version.orig.tar.gz" &&
        dpkg-parsechangelog -l "$source/debian/changelog" -S Version | grep -x "$version-1"
}
build() { (cd "$source" && DEB_BUILD_OPTIONS="parallel=$(nproc)" dpkg-buildpackage -us -uc -b); }
# The project has neither an address nor a bug report that its first upload would close.
lint()
{
    lintian --allow-root --fail-on error,warning --suppress-tags \
        bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs "$work"/*.changes
}
# All but Python's, whose scripts ask for a whole system: that is a step of test/roots.
install()
{
    mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" && : >"$root/var/lib/dpkg/status" &&
        dpkg --root="$root" --force-depends --force-not-root --log=/dev/null --install $(ls "$work"/*.deb | grep -v /python3-)
}
purge()
{
    dpkg --root="$root" --force-not-root --log=/dev/null --force-depends --purge $(dpkg --root="$root" --get-selections | cut -f 1) &&
        nothing_left
}
complete()
{
    for package in libstepaf1 libstepaf-mpi1 libstepaf-pmix1 libstepaf-dev stepaf-tools python3-stepaf; do
        [ -e "$(echo "$work/${package}_${version}"-1_*.deb)" ] || { echo "no $package"; return 1; }
    done
    dpkg-deb -x "$work"/libstepaf1_*.deb "$work/extracted" && dpkg-deb -e "$work"/libstepaf1_*.deb "$work/extracted/DEBIAN" &&
        grep -q 'STEPAF_0.2 0.2.0' "$work/extracted/DEBIAN/symbols" && rm -r "$work/extracted"
}
# in_python LIBDIR: push_pull.py on two ranks, by the package as it lies there.
in_python()
{
    rm -rf "$work/python" && dpkg-deb -x "$work"/python3-stepaf_*.deb "$work/python" || return
    (
        export PYTHONPATH="$work/python/usr/lib/python3/dist-packages" LD_LIBRARY_PATH="$root$1" \
            STEPAF_LOCAL_SIZE=2 STEPAF_LOCAL_JOB=debian-$$ STEPAF_SPLIT=attn=1,ffn=1
        /usr/bin/python3 -c "import stepaf, fserver_lib; print(stepaf.__file__)" | grep "^$work" || exit
        STEPAF_LOCAL_RANK=1 timeout 60 /usr/bin/python3 "$top/examples/python/push_pull.py" &
        STEPAF_LOCAL_RANK=0 timeout 60 /usr/bin/python3 "$top/examples/python/push_pull.py" | grep -x 42.0 && wait $!
    )
}

try "debian: unpack" unpack && try "debian: dpkg-buildpackage" build && try "debian: the packages" complete || exit 1
if command -v lintian >/dev/null; then
    try "debian: lintian" lint
else
    step SKIP "debian: lintian: it is not installed"
fi
if try "debian: install" install; then
    try "debian: no modulefile" no_module
    if command -v mpirun >/dev/null; then
        try "debian: program and exchange" consumer "/usr/lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)"
    else
        step SKIP "debian: program and exchange: mpirun is not installed"
    fi
    try "debian: Python" in_python "/usr/lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)"
    try "debian: purge, and nothing is left" purge
fi
exit $failed
