#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stepaf_doctor on three hosts that meet over TCP: each reaches each other one; and what it says where one drops what
# comes, where another forbids itself what goes out, and where one of two addresses does; in a container without rights.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
hosts_enter "$@"
hosts_up 3 || exit 99
doctor=$(cd "$top_builddir" && pwd)/stepaf_doctor
failed=0
for name in RANK WORLD_SIZE MASTER_ADDR MASTER_PORT; do
    unset $name
done
# Where ranks are not the first one, the job itself has the first port of the range, and the doctor the next one.
export STEPAF_SIZE=3 STEPAF_MEET=h1:27000 STEPAF_SECRET=known-to-all STEPAF_NET_PORTS=27110-27119

# look CODE: all three, with what rank 0 says in /run/out.
look()
{
    pids=
    for number in 2 1 0; do
        STEPAF_RANK=$number hosts_run h$((number + 1)) timeout -k 10 100 "$doctor" ranks \
            </dev/null >/run/out$number 2>&1 &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid"
        [ $? -eq "$1" ] || fail "an exit code is not $1"
    done
    [ ! -s /run/out1 ] && [ ! -s /run/out2 ] || fail "others than rank 0 have something to say"
}
fail()
{
    echo "FAILED: $*"
    cat /run/out0 /run/out1 /run/out2
    failed=1
}
# has COUNT PATTERN: as many lines are like this.
has()
{
    [ "$(grep -c "$2" /run/out0)" -eq "$1" ] || fail "not $1 lines like $2"
}

look 0
has 1 '^3 ranks on 3 hosts: h1, h2, h3$'
has 1 '^passed *connect *6 of 6 connections have reached the host meant'
has 1 '^passed *same *.*settings of the library'
echo "all hosts reach each other"

# What /sys shows is the interfaces of the namespace that it was mounted in.
if ls -d /sys/class/net/[a-z]* >/dev/null 2>&1; then
    unshare --net "$doctor" interfaces >/run/out0 2>&1
    ! grep '^passed' /run/out0 || fail "an interface has passed that is not there"
fi

# A container without rights, which sees nothing of the machine: has passed what it has tried or may read, no more.
# shellcheck disable=SC2016
box='unset STEPAF_SIZE STEPAF_MEET STEPAF_SECRET STEPAF_NET_PORTS
    mount -t tmpfs -o size=32m none /dev/shm && mount -t tmpfs none /sys && ulimit -S -l 64 &&
    exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$0" "$@"'
boxed() { unshare --user --map-root-user --net --mount --pid --ipc --fork --mount-proc sh -c "$box" "$@"; }
if boxed true 2>/dev/null; then
    boxed "$doctor" >/run/out0 2>&1
    [ $? -le 1 ] || fail "no exit code of a doctor"
    grep -q ' passed, .* unknown$' /run/out0 || fail "the container's report has no end"
    ! grep '^passed' /run/out0 | grep -v '^passed *\(ptrace\|attach\|files\|settings\|jitter\|gpu\|peermem\|dmabuf\) ' || fail "passed, in a container"
    has 1 '^warned *memlock *64 KiB may be locked; whether an RDMA device requires more cannot be read'
    has 1 '^warned *shm *32 MiB'
    has 1 '^warned *namespace *one of its own'
    if grep -q '^#define HAVE_JANSSON 1' "$top_builddir/config.h" && command -v python3 >/dev/null; then
        boxed "$doctor" memory process net gpu --json >/run/out1 2>&1
        python3 - /run/out1 <<'END' || fail "--json in a container"
import json, sys
said = json.load(open(sys.argv[1]))
assert said["passed"] == sum(f["state"] == "passed" for f in said["findings"]) <= 4, said
END
        : >/run/out1
    fi
    echo "a container without rights"
fi

# Answers of h2 get nowhere, by IPv4.
if ! ip -n h2 rule add pref 10 ipproto tcp sport 27111 blackhole 2>/dev/null; then
    echo "not tried: firewalls, since this kernel has no rules of routing by ports"
    exit $failed
fi
if [ -d /proc/sys/net/ipv6 ]; then
    look 0
    has 2 '^warned *connect *h[13] reaches h2 by \[fd77::2\]:27111, but before: 10.77.0.2:27111: no answer'
    echo "one of two addresses is no good"
    ip -n h2 -6 rule add pref 10 ipproto tcp sport 27111 blackhole || fail "no rule of IPv6"
fi
look 1
has 2 '^failed *connect *h[13] does not reach h2: 10.77.0.2:27111: no answer, as where a firewall drops packets'
has 2 '^failed *connect'
has 2 'mend: STEPAF_NET_PORTS='
echo "a host that drops"
for family in -4 -6; do
    ip -n h2 $family rule del pref 10 2>/dev/null
    ip -n h3 $family rule add pref 10 ipproto tcp dport 27111 prohibit 2>/dev/null
done
look 1
has 1 "^failed *connect *h3 does not reach h2: 10.77.0.2:27111: this host's own firewall forbids it"
has 1 '^failed *connect'
echo "a host that forbids itself"
hosts_check || failed=1
exit $failed
