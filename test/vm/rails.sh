#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The guest's rails, all in one network namespace, from which traffic yet leaves by one end of a
# veth pair and comes in by the other: rails.sh up | rails.sh route NAME... | rails.sh mend
#
#   r0, r1  Soft-RoCE devices r0a and r0b, r1a and r1b    10.1.0.1 and .2, 10.1.1.1 and .2
#   s0      soft-iWARP devices s0a and s0b                10.1.2.1 and .2
#
# A device's name is also its network interface's. "route" is for after an interface was down:
# the kernel has then forgotten its routes and neighbours. "mend" is for after a case that was killed:
# every end is up, and loses nothing.
set -u

# rail_number NAME: the third number of its addresses.
rail_number()
{
    case $1 in
    r0) echo 0 ;;
    r1) echo 1 ;;
    s0) echo 2 ;;
    *) return 1 ;;
    esac
}

# rail_routes NAME: lines for "ip -batch": what one end sends to the other leaves by itself.
rail_routes()
{
    local n
    n=$(rail_number "$1") || return
    cat <<END
route replace 10.1.$n.2 dev $1a src 10.1.$n.1 table $((100 + 2 * n))
route replace 10.1.$n.1 dev $1b src 10.1.$n.2 table $((101 + 2 * n))
neigh replace 10.1.$n.2 lladdr 02:00:0a:01:0$n:02 dev $1a nud permanent
neigh replace 10.1.$n.1 lladdr 02:00:0a:01:0$n:01 dev $1b nud permanent
END
}

# rail_links NAME: lines for "ip -batch". There is room for the largest RDMA packet and its headers.
rail_links()
{
    local n
    n=$(rail_number "$1") || return
    cat <<END
link add $1a address 02:00:0a:01:0$n:01 type veth peer name $1b address 02:00:0a:01:0$n:02
addr add 10.1.$n.1/24 dev $1a
addr add 10.1.$n.2/24 dev $1b
link set $1a mtu 4500 up
link set $1b mtu 4500 up
rule add pref 10 iif $1a lookup local
rule add pref 10 iif $1b lookup local
rule add pref 20 from 10.1.$n.1 to 10.1.$n.2 lookup $((100 + 2 * n))
rule add pref 20 from 10.1.$n.2 to 10.1.$n.1 lookup $((101 + 2 * n))
END
    rail_routes "$1"
}

# rail_devices NAME TYPE: lines for "rdma -b".
rail_devices()
{
    printf 'link add %s type %s netdev %s\n' "$1a" "$2" "$1a" "$1b" "$2" "$1b"
}

# The kernel would deliver what goes to an own address without sending it, and throw away what
# comes in from one. All lines of a kind go to one process: starting one takes an emulator long.
rails_up()
{
    local name rails="r0 r1" devices
    modprobe -a veth ib_uverbs rdma_ucm ib_umad sch_netem rdma_rxe || return
    devices=$(rail_devices r0 rxe && rail_devices r1 rxe)
    if modprobe siw; then
        rails="$rails s0"
        devices=$devices$'\n'$(rail_devices s0 siw)
    fi
    for name in all default; do
        echo 0 >"/proc/sys/net/ipv4/conf/$name/rp_filter"
        echo 1 >"/proc/sys/net/ipv4/conf/$name/accept_local"
        echo 1 >"/proc/sys/net/ipv4/conf/$name/arp_ignore"
        echo 2 >"/proc/sys/net/ipv4/conf/$name/arp_announce"
    done
    {
        printf 'rule add pref 300 lookup local\nrule del pref 0\n'
        for name in $rails; do
            rail_links "$name"
        done
    } | ip -batch - && echo "$devices" | rdma -b -
}

rails_mend()
{
    local name end rails=()
    for name in r0 r1 s0; do
        [ -e "/sys/class/net/${name}a" ] || continue
        rails+=("$name")
        for end in "${name}a" "${name}b"; do
            tc qdisc del dev "$end" root 2>/dev/null
            ip link set "$end" up || return
        done
    done
    "$0" route "${rails[@]}"
}

case ${1:-} in
up) rails_up ;;
mend) rails_mend ;;
route)
    shift
    for name; do
        rail_routes "$name" || exit
    done | ip -batch -
    ;;
*)
    sed -n '3,11s/^#\( \|$\)//p' "$0"
    exit 2
    ;;
esac
