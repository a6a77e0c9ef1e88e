#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run a command on a Slurm cluster of virtual nodes: cluster.sh NODES COMMAND [ARGUMENT...]
#
# Controller and nodes are processes of this machine in name spaces of their own: for processes, so
# that none outlives the command, whatever ends it; for mounts, so that their files are in memory
# that goes with them; for the network, which has nothing but a loopback; and for host names, one
# for each node. Exits like the command; with 77 and a reason where there is no permission for name
# spaces or no Slurm, with 99 if the cluster does not come up.
set -u
self=$(cd "$(dirname "$0")" && pwd)/cluster.sh

skip()
{
    echo "skipped: $1"
    exit 77
}

# ---- outside: enter the name spaces ----
if [ "${1:-}" != --inside ]; then
    for tool in munged slurmctld slurmd srun sinfo salloc ip unshare; do
        PATH=$PATH:/usr/sbin:/sbin command -v $tool >/dev/null ||
            skip "$tool is not installed: see packages_test in build-aux/packages.sh"
    done
    spaces="--mount --uts --ipc --net --pid --fork --kill-child --mount-proc"
    # A user who is not root becomes root in a name space of users.
    [ "$(id -u)" -eq 0 ] || spaces="--user --map-root-user $spaces"
    # shellcheck disable=SC2086
    unshare $spaces true 2>/dev/null || skip "no permission to make name spaces (unshare $spaces)"
    directory=$(mktemp -d "${TMPDIR:-/tmp}/stepaf-slurm.XXXXXX") || exit 99
    trap 'rmdir "$directory"' EXIT
    trap 'kill "$inside"' HUP INT TERM
    # shellcheck disable=SC2086
    unshare $spaces sh "$self" --inside "$directory" "$@" <&0 &
    inside=$!
    wait "$inside"
    exit $?
fi

# ---- inside ----
D=$2
nodes=$3
shift 3
PATH=$PATH:/usr/sbin:/sbin

fail()
{
    echo "the Slurm cluster: $1"
    tail -n 15 "$D"/log/* 2>/dev/null
    exit 99
}

# The name of node $1 as host, and what is to run there.
on_node()
{
    node=$1
    shift
    # shellcheck disable=SC2016
    unshare --uts sh -c 'hostname "$0"; exec "$@"' "$node" "$@"
}

write_conf()
{
    cat >"$D/etc/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=ctl(127.0.0.1)
SlurmctldPort=6817
SlurmctldPidFile=$D/pid/slurmctld
SlurmctldLogFile=$D/log/slurmctld
SlurmdPidFile=$D/pid/%n
SlurmdLogFile=$D/log/%n
SlurmdSpoolDir=$D/spool/%n
StateSaveLocation=$D/state
TmpFS=$D/tmp/%n
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$D/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=0,bf_interval=1
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ReturnToService=2
KillWait=1
KillOnBadExit=1
CONF
    for i in $(seq "$nodes"); do
        echo "NodeName=n$i NodeHostname=n$i NodeAddr=127.0.0.1 Port=$((7000 + i)) CPUs=8 State=UNKNOWN"
    done >>"$D/etc/slurm.conf"
    echo "PartitionName=all Nodes=n[1-$nodes] Default=YES OverSubscribe=YES MaxTime=10 State=UP" \
        >>"$D/etc/slurm.conf"
    # Slurm's PMIx plugin ends a step when it hears that a process has died, whatever srun was told;
    # it hears of that so many seconds later, 1 by default.
    printf 'PMIxTimeout=20\nPMIxEnv=PMIX_MCA_pmix_event_caching_window=60\n' >"$D/etc/mpi.conf"
    echo "CgroupPlugin=cgroup/v1" >"$D/etc/cgroup.conf"
    {
        echo "127.0.0.1 localhost ctl"
        for i in $(seq "$nodes"); do
            echo "127.0.0.1 n$i"
        done
    } >"$D/etc/hosts"
}

start_munge()
{
    dd if=/dev/urandom of="$D/munge/key" bs=1024 count=1 2>/dev/null
    chmod 400 "$D/munge/key"
    munged --force --key-file="$D/munge/key" --socket="$D/munge/socket" \
        --pid-file="$D/munge/pid" --seed-file="$D/munge/seed" --log-file="$D/log/munged" ||
        fail "munged does not start"
}

await_nodes()
{
    tries=0
    until [ "$(timeout 5 sinfo -h -t idle -o %D 2>/dev/null)" = "$nodes" ]; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || fail "its nodes are not idle after 20 s"
        sleep 0.2
    done
}

mount -t tmpfs -o mode=755 tmpfs "$D" || skip "no permission to mount"
# Another cluster has nodes, jobs and steps of the same names, by which Open MPI calls its shared memory.
mount -t tmpfs -o mode=1777 tmpfs /dev/shm || skip "no permission to mount"
mkdir "$D/etc" "$D/log" "$D/munge" "$D/pid" "$D/spool" "$D/state" "$D/tmp"
# So does it call its files there: those of all clusters are of n1, n2, n3, and process ids are the same.
export TMPDIR="$D/tmp"
for i in $(seq "$nodes"); do
    mkdir "$D/spool/n$i" "$D/tmp/n$i"
done
hostname ctl
ip link set lo up || skip "no permission to bring a loopback up"
# A host with no address but 127.0.0.1 counts as one without IPv4: getaddrinfo would know no name.
ip address add 10.77.0.1/32 dev lo || fail "no address for the loopback"
write_conf
mount --bind "$D/etc/hosts" /etc/hosts || skip "no permission to mount"
export SLURM_CONF="$D/etc/slurm.conf"
start_munge
slurmctld -c || fail "slurmctld does not start"
for i in $(seq "$nodes"); do
    on_node "n$i" slurmd -N "n$i" -c || fail "slurmd of node n$i does not start"
done
await_nodes
export SLURM_TEST_DIRECTORY="$D"
"$@"
