#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fetch the distribution's kernel and unpack it, installing nothing: fetch.sh DIRECTORY
#
# Makes DIRECTORY/image, the kernel, DIRECTORY/lib/modules/RELEASE with modprobe's lists, and in the
# end DIRECTORY/release, which says RELEASE. Exit code 77: no recipe for this system.
set -eu
directory=$1

# Packages that hold nothing, but name the current kernel: Debian's, Ubuntu's.
kernel_packages="linux-image-amd64 linux-image-generic"

# depends PACKAGE PATTERN: the first package whose name matches that PACKAGE depends on.
depends()
{
    apt-cache depends "$1" 2>/dev/null | sed -n 's/^ *Depends: //p' | grep -m 1 "^$2"
}

# kernel_find: the name of the package that has the kernel itself.
kernel_find()
{
    local meta
    for meta in $kernel_packages; do
        depends "$meta" 'linux-image-[0-9]' && return
    done
    return 1
}

# kernel_plain VMLINUZ IMAGE: take the kernel out of the file that unpacks itself, which an emulated
# processor needs ten seconds for. As it is, it boots as well.
kernel_plain()
{
    local format magic offset
    for format in 'xz \xfd7zXZ\x00' 'zstd \x28\xb5\x2f\xfd' 'gzip \x1f\x8b\x08'; do
        magic=${format#* }
        while read -r offset; do
            # What follows the kernel is not of its format, which the tools say and exit with 1.
            tail -c "+$((offset + 1))" "$1" | "${format%% *}" -dc >"$2" 2>/dev/null || :
            if [ "$(head -c 4 "$2" | tail -c 3)" = ELF ]; then
                return
            fi
        done < <(LC_ALL=C grep -aboP "$magic" "$1" | cut -d: -f1)
    done
    cp "$1" "$2"
}

case $(uname -m) in
x86_64) ;;
*)
    echo "the guest is made for x86_64 only, this is $(uname -m)"
    exit 77
    ;;
esac
if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
    echo "without apt-get there is no kernel package: this is neither Debian nor Ubuntu"
    exit 77
fi
if ! image=$(kernel_find); then
    echo "apt-cache knows none of: $kernel_packages (does 'apt-get update' help?)"
    exit 1
fi
release=${image#linux-image-}
packages=$image
# Ubuntu has the modules in packages of their own.
for package in "linux-modules-$release" "linux-modules-extra-$release"; do
    if apt-cache show "$package" 2>/dev/null | grep -q '^Package:'; then
        packages="$packages $package"
    fi
done

rm -rf "$directory"
mkdir -p "$directory/unpacked"
cd "$directory"
# shellcheck disable=SC2086
timeout -k 10 900 apt-get -q download $packages
for package in *.deb; do
    dpkg -x "$package" unpacked
    rm "$package"
done
kernel_plain "unpacked/boot/vmlinuz-$release" image
mkdir -p lib
for modules in unpacked/lib/modules unpacked/usr/lib/modules; do
    if [ -d "$modules/$release" ]; then
        mv "$modules" lib/
        break
    fi
done
rm -rf unpacked
PATH=$PATH:/usr/sbin:/sbin depmod -b "$PWD" "$release"
echo "$release" >release
