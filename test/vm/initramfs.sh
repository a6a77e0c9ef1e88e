#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Make the guest's first file system: initramfs.sh KERNEL OUTPUT, where fetch.sh has made KERNEL.
# It holds a static busybox, init, and the modules that mounting the host's files takes.
set -eu
PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "$0")" && pwd)
kernel=$(cd "$1" && pwd)
output=$2
release=$(cat "$kernel/release")
root=$(mktemp -d "$output.XXXXXX")
trap 'rm -rf "$root"' EXIT

mkdir -p "$root"/{bin,modules,proc,sys,dev,host,scratch,new}
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$here/init" "$root/init"
chmod 755 "$root/init"

# plain FILE NAME: the module without its compression.
plain()
{
    case $1 in
    *.ko) cp "$1" "$root/modules/$2.ko" ;;
    *.ko.xz) xz -dc "$1" >"$root/modules/$2.ko" ;;
    *.ko.zst) zstd -q -dc "$1" >"$root/modules/$2.ko" ;;
    *) echo "$1: a compression that is not known here" && false ;;
    esac
}

# "insmod FILE" in the order of their dependencies; what is built in says "builtin NAME".
for module in virtio_pci 9pnet_virtio 9p overlay; do
    modprobe -d "$kernel" -S "$release" --show-depends "$module"
done >"$root/depends"
while read -r verb file _; do
    [ "$verb" = insmod ] || continue
    name=$(basename "${file%%.ko*}")
    [ -e "$root/modules/$name.ko" ] && continue
    plain "$file" "$name"
    echo "$name" >>"$root/modules/order"
done <"$root/depends"
rm "$root/depends"

# Not compressed: unpacking takes an emulated processor longer than reading.
(cd "$root" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) >"$output.new"
mv "$output.new" "$output"
