#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Have the soft-iWARP module in an unpacked kernel: siw.sh KERNEL, where fetch.sh has been.
#
# Ubuntu ships it; Debian does not, so it is built from the kernel's own source package, out of
# tree. In both cases the module is changed: see copy_writes. Where that cannot be, the reason is the last line of the
# output and the exit code is 1.
set -eu
PATH=$PATH:/usr/sbin:/sbin
kernel=$(cd "$1" && pwd)
release=$(cat "$kernel/release")
sources=
trap 'rm -rf "$sources"' EXIT

# copy_writes MODULE: have it copy what it sends. Pages that are sent as they are, without a copy, are read by the receiver
# behind a loopback: a write can be complete before that, and what is put there then is sent in its place (Linux 6.8 and
# 6.12). Devices complete writes that have been read. It is a constant of the module, read where it is used; a module that
# is changed must not have its signature any more, which strip drops.
copy_writes()
{
    local value section offset
    strip -g "$1"
    read -r value section < <(readelf -sW "$1" | awk '$8 == "zcopy_tx" { print $2, $7 }') &&
        offset=$(readelf -SW "$1" | sed -n "s/^ *\[ *$section\] \.rodata *PROGBITS *[0-9a-f]* *\([0-9a-f]*\) .*/\1/p") &&
        [ -n "$offset" ] && printf '\0' | dd of="$1" bs=1 seek=$((0x$offset + 0x$value)) conv=notrunc status=none && return
    echo "siw of linux-image-$release has no constant zcopy_tx"
    exit 1
}

rm -rf "$kernel"/siw.*
if modinfo -b "$kernel" -k "$release" siw >/dev/null 2>&1; then
    module=$(modinfo -b "$kernel" -k "$release" -n siw)
    case $module in
    *.zst) zstd -dq --rm "$module" ;;
    *.xz) unxz "$module" ;;
    esac
    copy_writes "${module%.ko*}.ko"
    depmod -b "$kernel" "$release"
    exit 0
fi
if ! command -v "${CC:-gcc}" >/dev/null || ! command -v make >/dev/null; then
    echo "siw is no module of linux-image-$release, and there is no compiler to build it"
    exit 1
fi

# 6.1 of 6.1.0-56-amd64; the headers' other half is in the package that names no flavour.
series=$(echo "$release" | cut -d. -f1,2)
packages="linux-headers-$release linux-headers-${release%-*}-common linux-kbuild-$series"
packages="$packages linux-source-$series"
sources=$(mktemp -d "$kernel/siw.XXXXXX")
cd "$sources"
# shellcheck disable=SC2086
if ! timeout -k 10 900 apt-get -q download $packages; then
    echo "siw is no module of linux-image-$release, and these are not to be had: $packages"
    exit 1
fi
mv linux-source-*.deb source.deb
for package in linux-*.deb; do
    dpkg -x "$package" unpacked
done
dpkg --fsys-tarfile source.deb | tar -xO "./usr/src/linux-source-$series.tar.xz" |
    xz -dc | tar -x "linux-source-$series/drivers/infiniband/sw/siw"

# The headers expect to lie in /usr/src.
headers=$sources/unpacked/usr/src/linux-headers-$release
sed -i "s,/usr/src/,$sources/unpacked/usr/src/," "$headers/Makefile"
cd "linux-source-$series/drivers/infiniband/sw/siw"
# shellcheck disable=SC2016
sed -i 's/\$(CONFIG_RDMA_SIW)/m/' Makefile
# Type information would want the kernel's own, and makes the module twenty times as large.
if ! make -C "$headers" M="$PWD" CONFIG_DEBUG_INFO_BTF_MODULES= modules; then
    echo "siw does not build from linux-source-$series"
    exit 1
fi
copy_writes siw.ko
mkdir -p "$kernel/lib/modules/$release/extra"
cp siw.ko "$kernel/lib/modules/$release/extra/"
depmod -b "$kernel" "$release"
