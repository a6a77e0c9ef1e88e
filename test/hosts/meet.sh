#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks on three hosts that meet over TCP, started by hand, by stepaf-run with ssh, and as pods of a
# StatefulSet; what they say where they cannot; and the death of the one where they met.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
[ -z "${SANITIZERS:-}" ] || { echo "skipped: sanitizer builds try this on one host"; exit 77; }
hosts_enter "$@"
hosts_up 3 || exit 99
here=$(cd "$top_builddir" && pwd)
rank=$here/test/launch/tcp_rank
failed=0
export STEPAF_SPLIT=attn=2,ffn=1 STEPAF_SIZE=3 STEPAF_TIMEOUT_US=60000000
for name in RANK WORLD_SIZE MASTER_ADDR MASTER_PORT STEPAF_ROLE; do
    unset $name
done

# ranks COMMAND...: one on each host, the last first, with what they say in /run/out and /run/err.
ranks()
{
    pids=
    for number in 2 1 0; do
        STEPAF_RANK=$number hosts_run h$((number + 1)) timeout -k 10 100 "$@" \
            </dev/null >>/run/out 2>>/run/err &
        pids="$pids $!"
    done
    codes=
    for pid in $pids; do
        wait "$pid"
        codes="$codes $?"
    done
    sed -i '/ Killed /d; /^Killed$/d' /run/err # the shell's word for it
}

# check WORDS CODES OUT ERR: the codes of ranks 2, 1 and 0, and what all have said.
check()
{
    if [ "$codes" != " $2" ] || [ "$(sort -u /run/out)" != "$3" ] || [ "$(sort -u /run/err)" != "$4" ]; then
        echo "FAILED: $1: exit codes$codes, and they said"
        cat /run/out /run/err
        failed=1
    else
        echo "$1"
    fi
    : >/run/out >/run/err
}
: >/run/out >/run/err
all="rank 0 of 3: attention
rank 1 of 3: attention
rank 2 of 3: ffn"

export STEPAF_MEET=h1:27000 STEPAF_SECRET=known-to-all
ranks "$rank"
check "a host by its name" "0 0 0" "$all" ""
STEPAF_NET_PORTS=27110-27119 ranks "$rank"
check "a range of ports" "0 0 0" "$all" ""
if [ -d /proc/sys/net/ipv6 ]; then
    STEPAF_MEET=[fd77::1]:27000 ranks "$rank"
    check "IPv6" "0 0 0" "$all" ""
fi
# By an address of the link alone, which needs the interface.
link=$(ip netns exec h1 ip -6 -o address show dev eth0 scope link 2>/dev/null | sed -n 's/.* \(fe80[^/]*\).*/\1/p')
if [ -n "$link" ]; then
    STEPAF_MEET="[$link%eth0]:27000" ranks "$rank"
    check "an address of the link" "0 0 0" "$all" ""
fi
# A rank beside rank 0, which comes late, where the system has few ports for connections: TCP would connect it to
# itself.
# shellcheck disable=SC2016
hosts_run h1 sh -c 'echo 40000 40019 >/proc/sys/net/ipv4/ip_local_port_range
    export STEPAF_MEET=127.0.0.1:40000 STEPAF_SIZE=2 STEPAF_SPLIT=attn=1,ffn=1
    STEPAF_RANK=1 timeout -k 10 100 "$0" & sleep 3
    STEPAF_RANK=0 timeout -k 10 100 "$0"; code=$?; wait $!; echo "$? $code" >/run/codes
    echo 32768 60999 >/proc/sys/net/ipv4/ip_local_port_range' "$rank" </dev/null >>/run/out 2>>/run/err
codes=" $(cat /run/codes)"
check "a late rank 0 and few ports" "0 0" "rank 0 of 2: attention
rank 1 of 2: ffn" ""
# Name service that does not answer.
echo "nameserver $hosts_net4.250" >/run/resolv
echo "hosts: files dns" >/run/nsswitch
began=$(date +%s)
# shellcheck disable=SC2016
STEPAF_MEET=node.example:27000 STEPAF_INIT_TIMEOUT_US=1000000 ranks unshare --mount sh -c '[ $STEPAF_RANK != 0 ] || exit 0
    mount --bind /run/resolv /etc/resolv.conf; mount --bind /run/nsswitch /etc/nsswitch.conf; exec "$0"' "$rank"
check "no answer by name service" "1 1 0" "" "\
start: tcp bootstrap: node.example:27000: rank 0 did not arrive in time: the name service has not answered: STEPAF_INIT_TIMEOUT_US is 1000000 us"
[ $(($(date +%s) - began)) -le 4 ] || { echo "FAILED: name service was waited for"; failed=1; }
# A name of two addresses, at the first of which somebody takes connections and says nothing.
echo "$hosts_net4.2 twin
$hosts_net4.1 twin" >>/etc/hosts
STEPAF_MEET=h2:27000 STEPAF_RANK=0 hosts_run h2 "$rank" </dev/null >/dev/null 2>&1 &
silent=$!
for _ in $(seq 100); do
    ip netns exec h2 ss -ltn 2>/dev/null | grep -q ':27000 ' && break
    sleep 0.1
done
silent=$(pgrep -P $silent -x tcp_rank || echo $silent)
kill -STOP "$silent"
began=$(date +%s)
STEPAF_MEET=twin:27000 ranks "$rank"
check "a silent program at one of two addresses" "0 0 0" "$all" ""
[ $(($(date +%s) - began)) -le 15 ] || { echo "FAILED: silence was waited for"; failed=1; }
kill -KILL "$silent"
# Rank 0's own name leads to loopback there, as on Debian.
echo "127.0.1.1 h1" >/run/hosts1
cat /run/hosts1 /etc/hosts >/run/hosts2
# shellcheck disable=SC2016
ranks unshare --mount sh -c '[ $STEPAF_RANK != 0 ] || mount --bind /run/hosts2 /etc/hosts; exec "$0"' "$rank"
check "a name that is loopback on its own host" "0 0 0" "$all" ""
# More ranks than hosts: 16 of them, the last first.
pids=
for number in $(seq 15 -1 0); do
    STEPAF_RANK=$number STEPAF_SIZE=16 STEPAF_SPLIT=attn=8,ffn=8 hosts_run h$((number % 3 + 1)) \
        timeout -k 10 100 "$rank" </dev/null >>/run/out 2>>/run/err &
    pids="$pids $!"
done
codes=
for pid in $pids; do
    wait "$pid" || codes="$codes $?"
done
codes="$codes $(grep -c '^rank [0-9]* of 16: ' /run/out)"
: >/run/out
check "16 ranks" "16" "" ""
ranks "$rank" outlive
check "the death of rank 0" "0 0 137" "$(echo "$all" | tail -n 2)" ""

# Sentences that take several hosts.
STEPAF_MEET=10.77.0.1:27000 STEPAF_SECRET= STEPAF_LOG_LEVEL=warn ranks "$rank"
sed -i 's/.*WARN *//' /run/err
why="tcp bootstrap: no secret is set (STEPAF_SECRET, STEPAF_SECRET_FILE): any process that reaches 10.77.0.1:27000 can become a rank of this job"
check "no secret" "0 0 0" "$all" "$why"
ip netns exec h2 ip link set eth0 down
ip netns exec h3 ip link set eth0 down
STEPAF_MEET=10.77.0.1:27000 STEPAF_INIT_TIMEOUT_US=1000000 ranks "$rank"
check "hosts without a network" "1 1 1" "" "\
start: tcp bootstrap: 10.77.0.1:27000: rank 0 did not arrive in time: Network is unreachable: STEPAF_INIT_TIMEOUT_US is 1000000 us
start: tcp bootstrap: 10.77.0.1:27000: ranks 1, 2 did not arrive in time; 1 of 3 are here; check that 10.77.0.1 is this host: STEPAF_INIT_TIMEOUT_US is 1000000 us"
ip netns exec h2 ip link set eth0 up
ip netns exec h3 ip link set eth0 up

ip netns exec h3 ip route add unreachable $hosts_net4.2/32
STEPAF_INIT_TIMEOUT_US=1000000 ranks "$rank"
check "hosts that do not reach each other" "1 1 1" "" "\
start: tcp bootstrap: exchange: world rank 2 cannot reach world rank 1: No route to host: STEPAF_INIT_TIMEOUT_US is 1000000 us"
ip netns exec h3 ip route del unreachable $hosts_net4.2/32
# What rank 2 sends to rank 1 gets lost without a word.
ip netns exec h3 ip neigh replace $hosts_net4.2 lladdr 02:00:00:00:00:77 dev eth0 nud permanent
STEPAF_INIT_TIMEOUT_US=4000000 ranks "$rank"
check "a firewall between two hosts" "1 1 1" "" "\
start: tcp bootstrap: exchange: world rank 2 cannot reach world rank 1: no answer (does a firewall drop packets?): STEPAF_INIT_TIMEOUT_US is 4000000 us"
ip netns exec h3 ip neigh del $hosts_net4.2 dev eth0

# Pods: each knows its number by its name.
for index in 1 2 3; do
    echo "$hosts_net4.$index pod-$((index - 1)).service" >>/etc/hosts
done
# shellcheck disable=SC2016
STEPAF_MEET=pod-0.service:27000 ranks sh -c 'hostname pod-$STEPAF_RANK; unset STEPAF_RANK; exec "$0"' "$rank"
check "a StatefulSet" "0 0 0" "$all" ""

# stepaf-run, whose ssh goes to these hosts.
mkdir /run/bin
cat >/run/bin/ssh <<END
#!/bin/sh
while :; do case \$1 in -*) shift ;; *) break ;; esac; done
exec sh $(cd "$top_srcdir" && pwd)/test/hosts/rsh.sh "\$@"
END
chmod +x /run/bin/ssh
unset STEPAF_MEET STEPAF_SECRET STEPAF_SIZE STEPAF_SPLIT
codes=" $(PATH=/run/bin:$PATH hosts_run h1 "$here/stepaf-run" --launcher ssh --hosts h2,h3,h1 --bind none \
    -a 2 -f 1 "$rank" </dev/null >>/run/out 2>>/run/err; echo $?)"
check "stepaf-run --launcher ssh" "0" "$all" ""
hosts_check || exit 1
exit $failed
