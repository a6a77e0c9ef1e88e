#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: show by other people's programs that its devices do what the tests of the transport
# build on. rdma.sh devices | pingpong | write_lat | rping_siw | loss | link_down
# Exit code 77 if this kernel has no such devices.
set -u
here=$(dirname "$0")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# needs DEVICE...
needs()
{
    local device module
    for device; do
        module=rdma_rxe
        case $device in
        s*) module=siw ;;
        esac
        [ ! -e "/sys/class/infiniband/$device" ] || continue
        if modinfo "$module" >/dev/null 2>&1; then
            echo "there is no device $device, although there is a module $module:"
            cat "$VM_JOB/rails.log"
            exit 1
        fi
        echo "${VM_SIW_REASON:-the kernel $(uname -r) has no module $module}"
        exit 77
    done
}

# gid DEVICE: the index of its RoCE v2 address over IPv4; devices have others, too.
gid()
{
    local port=/sys/class/infiniband/$1/ports/1 file
    for file in "$port"/gids/*; do
        case $(cat "$file" 2>/dev/null) in
        0000:0000:0000:0000:0000:ffff:*)
            case $(cat "$port/gid_attrs/types/${file##*/}") in
            *"RoCE v2"*) echo "${file##*/}" && return ;;
            esac
            ;;
        esac
    done
    return 1
}

# until_true COMMAND...: poll it for 20 s.
until_true()
{
    local limit=$((SECONDS + 20))
    until "$@"; do
        if [ "$SECONDS" -ge "$limit" ]; then
            echo "not so after 20 s: $*"
            return 1
        fi
        sleep 0.1
    done
}

listening() { ss -Hltn "sport = :$1" | grep -q .; }
packets() { cat "/sys/class/net/$1/statistics/rx_packets"; }
state() { grep -q "$2" "/sys/class/infiniband/$1/ports/1/state"; }

# pair PORT SERVER CLIENT: two commands, each a string; both have to succeed.
pair()
{
    local server status
    $2 >"$scratch/server" 2>&1 &
    server=$!
    if until_true listening "$1"; then
        $3
    else
        kill "$server"
        false
    fi
    status=$?
    wait "$server" && [ $status -eq 0 ] && return
    echo "the client's exit code is $status; the server said:"
    cat "$scratch/server"
    return 1
}

devices()
{
    local device
    needs r0a r0b r1a r1b
    for device in r0a r0b r1a r1b; do
        ibv_devinfo -d "$device" | grep -q PORT_ACTIVE || return
        gid "$device" || return
    done
    rdma link
}

# rc_pingpong RAIL MESSAGES: from one end of a rail to the other.
rc_pingpong()
{
    local before
    before=$(packets "$1b")
    pair 18515 "ibv_rc_pingpong -m 4096 -n $2 -d $1b -g $(gid "$1b")" \
        "ibv_rc_pingpong -m 4096 -n $2 -d $1a -g $(gid "$1a") localhost" || return
    if [ $(($(packets "$1b") - before)) -lt "$2" ]; then
        echo "the messages have not crossed the link"
        return 1
    fi
}

pingpong()
{
    needs r0a r0b
    rc_pingpong r0 200
}

# write_lat_r0 WRITES
write_lat_r0()
{
    pair 18515 "ib_write_lat -F -n $1 -s 8 -d r0b -x $(gid r0b)" \
        "ib_write_lat -F -n $1 -s 8 -d r0a -x $(gid r0a) localhost"
}

write_lat()
{
    needs r0a r0b
    write_lat_r0 200
}

rping_siw()
{
    local before
    needs s0a s0b
    before=$(packets s0b)
    pair 7174 "rping -s -a 10.1.2.2 -C 20 -v" "rping -c -a 10.1.2.2 -I 10.1.2.1 -C 20 -v" || return
    [ $(($(packets s0b) - before)) -ge 20 ]
}

# With a program whose two sides wait for each other at their end: if the last acknowledgement is
# lost with its sender gone, Soft-RoCE repeats for ever, since it takes a retry count of 7 as no limit.
loss()
{
    local status
    needs r0a r0b
    tc qdisc add dev r0a root netem loss 10% && tc qdisc add dev r0b root netem loss 10% || return
    write_lat_r0 100
    status=$?
    tc -s qdisc show dev r0a | tee "$scratch/qdisc"
    tc qdisc del dev r0a root
    tc qdisc del dev r0b root
    [ $status -eq 0 ] && grep -q 'dropped [1-9]' "$scratch/qdisc"
}

link_down()
{
    local watch
    needs r1a r1b
    stdbuf -oL ibv_asyncwatch -d r1a >"$scratch/events" 2>&1 &
    watch=$!
    until_true grep -q 'async event FD' "$scratch/events" &&
        ip link set r1b down &&
        until_true grep -q IBV_EVENT_PORT_ERR "$scratch/events" &&
        until_true state r1a DOWN &&
        ip link set r1b up &&
        until_true grep -q IBV_EVENT_PORT_ACTIVE "$scratch/events" &&
        "$here/rails.sh" route r1 &&
        until_true state r1b ACTIVE &&
        rc_pingpong r1 50
    set -- $?
    kill "$watch"
    cat "$scratch/events"
    return "$1"
}

case ${1:-} in
devices | pingpong | write_lat | rping_siw | loss | link_down) "$1" ;;
*)
    sed -n '3,5s/^#\( \|$\)//p' "$0"
    exit 2
    ;;
esac
