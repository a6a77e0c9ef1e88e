#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: stepaf_doctor on devices that are there, as root and without rights, and what it says when a port goes
# down, when a device file is taken away, and where processes may not attach.
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
[ ! -e /sys/class/infiniband/s0a ] || has '^passed *gid *s0a:1 is iWARP'
has '^warned *rate *r0a:1 is made of software'
has '^passed *attach '

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
rm -f "$out"
exit $failed
