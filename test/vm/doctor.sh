#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: stepaf_doctor on devices that are there, as root and without rights, beside what other programs say of
# them, and what it says when a port goes down, when a device file is taken away, in containers, and where processes may
# not attach.
set -u
here=$(cd "$(dirname "$0")" && pwd)
doctor=${top_builddir:-$here/../..}/stepaf_doctor
scope=/proc/sys/kernel/yama/ptrace_scope
out=$(mktemp) || exit
failed=0
if [ ! -e /sys/class/infiniband/r0a ]; then
    echo "the kernel $(uname -r) has no module rdma_rxe"
    exit 77
fi

# look CODE COMMAND...: what the command says is in $out.
look()
{
    local code=$1 is
    shift
    "$@" >"$out" 2>&1
    is=$?
    [ $is -eq "$code" ] || fail "$*: exit code $is instead of $code"
}
fail()
{
    echo "FAILED: $*"
    cat "$out"
    failed=1
}
has() { grep -q "$1" "$out" || fail "no line like $1"; }
hasnt() { ! grep "$1" "$out" || fail "a line like $1"; }
without=(setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all)

"$doctor" >"$out" 2>&1
[ $? -le 1 ] && grep -q ' passed, .* unknown$' "$out" || fail "all of it"
cat "$out"
look 0 "$doctor" rdma port gid rate attach
has '^passed *rdma *r0a, firmware .*/dev/infiniband/uverbs'
has '^passed *port *r0a:1 is active on '
has '^passed *gid *r0a:1: address [0-9]* is RoCE v2 over IPv4$'
[ ! -e /sys/class/infiniband/s0a ] || has '^unknown *gid *s0a:1 is iWARP'
has '^warned *rate *r0a:1 is software'
has '^passed *attach '

# What has passed is so by ibv_devinfo's words, too.
look 0 "$doctor" memlock mtu gid
has '^passed *memlock *unlimited'
for device in r0a r1b; do
    ibv_devinfo -v -d $device >"$out.info" || fail "ibv_devinfo -d $device"
    grep -q 'state:.*PORT_ACTIVE' "$out.info" || fail "$device is not active"
    bytes=$(sed -n 's/.*active_mtu:[^0-9]*\([0-9]*\).*/\1/p' "$out.info")
    has "^passed *mtu *$device:1: MTU 4500 of $device, so packets of $bytes bytes at most"
    index=$(sed -n 's/.*GID\[ *\([0-9]*\)\]:.*::ffff:10\.1\..*RoCE v2.*/\1/p' "$out.info")
    has "^passed *gid *$device:1: address $index is RoCE v2 over IPv4$"
done
# Nobody, without capabilities: what it may not do has not passed.
ulimit -S -l 64
look 1 "${without[@]}" "$doctor" memlock
has '^failed *memlock *64 KiB may be locked, and there are RDMA devices'
ulimit -S -l hard

# The port and its interface.
netdev=$(cat /sys/class/infiniband/r0a/ports/1/gid_attrs/ndevs/0)
mtu=$(cat "/sys/class/net/$netdev/mtu")
ip link set "$netdev" mtu 1500
look 0 "$doctor" mtu
has "^warned *mtu *r0a:1: MTU 1500 of $netdev, so packets of 1024 bytes at most"
ip link set "$netdev" mtu "$mtu"
ip link set "$netdev" down
"$doctor" port >"$out" 2>&1
has '^\(warned\|failed\) *port *r0a:1 is 1: DOWN'
ip link set "$netdev" up

# A container that was not given the device.
# shellcheck disable=SC2016
look 1 unshare --mount sh -c 'mount -t tmpfs none /dev/infiniband && exec "$0" rdma' "$doctor"
has '^failed *rdma *r0a: there is no /dev/infiniband/uverbs'

# One with a network of its own sees the devices, whose addresses it cannot use; whether /sys is its own or not.
# shellcheck disable=SC2016
for sysfs in 'mount -t sysfs none /sys' true; do
    look 1 unshare --net --mount sh -c "$sysfs"' && exec "$0" port gid mtu' "$doctor"
    has '^failed *gid *r0a:1: its interface r0a is in another network namespace'
    has '^unknown *mtu *r0a:1: its interface r0a is in another network namespace'
    hasnt '^passed *\(gid\|mtu\)'
done
# Likewise, without any right.
look 1 unshare --user --net --mount --pid --ipc --fork --mount-proc "$doctor" memory process net gpu
hasnt '^passed *\(interfaces\|gid\|mtu\)'
has ' passed, .* unknown$'
# The kernel shows each device to one network only, and its file opens there alone.
if rdma system set netns exclusive 2>/dev/null; then
    look 1 unshare --net "$doctor" rdma
    has '^failed *rdma *r0a: /dev/infiniband/uverbs[0-9]* may not be opened'
    hasnt '^passed'
    rdma system set netns shared || fail "the kernel does not go back"
fi

if [ -e $scope ]; then
    before=$(cat $scope)
    echo 1 >$scope
    look 0 "${without[@]}" "$doctor" ptrace attach
    has '^passed *ptrace *ptrace_scope is 1'
    has '^passed *attach '
    echo 2 >$scope
    look 0 "${without[@]}" "$doctor" ptrace attach
    has '^warned *ptrace *ptrace_scope is 2'
    has '^warned *attach *process_vm_readv .*: Operation not permitted'
    hasnt '^passed *attach'
    echo "$before" >$scope
fi
rm -f "$out" "$out.info" "$out.text"
exit $failed
