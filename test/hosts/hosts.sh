# SPDX-License-Identifier: Apache-2.0
# Sourced by tests that need several hosts: network namespaces of this machine, joined by a bridge,
# each with a host name of its own. h1, h2, ... are 10.77.0.1, 10.77.0.2, ... and fd77::1, fd77::2,
# ... on their interface eth0, and know each other by name.
#
#   hosts_enter "$@"             first of all: go where nothing can be left behind, or skip
#   hosts_up N [LINK]            make hosts h1 .. hN; LINK is eth (the default) or bond
#   hosts_cabled MICROSECONDS    instead: h1 and h2, joined by a cable in user space that takes so long; /run/cable and
#                                descriptor 9 are its input, see delay.c; skips where there can be none
#   hosts_run HOST COMMAND...    run it there
#   hosts_need_mpirun            skip unless there is an mpirun that can be used here
#   hosts_mpirun SPEC ARG...     mpirun from h1 over SPEC, such as h1:2,h2:2
#   hosts_jobs FILE              all jobs of a file, written as a case of test/mpi
#   hosts_fork LIST COMMAND...   run a program of test/mpi whose forked ranks move to these hosts
#   hosts_check                  fails, and says why, if a process or a file was left behind
#   hosts_down                   remove the hosts, so that others can be made
#
# Everything happens in namespaces that belong to the script alone: mounts, processes, network,
# System V IPC and host name. So runs never meet, nothing gets out to any network, and whatever ends
# the script, kill -9 included, ends and frees all of it: processes, hosts, mounts, files. All that
# is needed is the right to make them, which root has, and on many systems everybody.

hosts_net4=10.77.0
hosts_net6=fd77:
# Who is not root has not got these in the path.
PATH=$PATH:/usr/sbin:/sbin

hosts_skip()
{
    echo "skipped: $*"
    exit 77
}

hosts_enter()
{
    if [ -n "${HOSTS_INSIDE:-}" ]; then
        unset HOSTS_INSIDE
        hosts_furnish || exit 99
        return
    fi
    for tool in unshare ip bridge hostname; do
        command -v $tool >/dev/null || hosts_skip "$tool is not installed"
    done
    # Without privilege there may be the way by a user namespace, in which everybody is root.
    for user in "" "--user --map-root-user"; do
        set -- "$user --mount --net --uts --ipc --pid --fork --kill-child --mount-proc" "$@"
        # Words are split on purpose.
        # shellcheck disable=SC2086
        if hosts_why=$(unshare $1 ip link add br0 type bridge 2>&1); then
            hosts_flags=$1
            shift
            HOSTS_INSIDE=1 exec unshare $hosts_flags "${BASH:-sh}" "$0" "$@"
        fi
        shift
    done
    hosts_skip "no network namespaces here: $(echo "$hosts_why" | tail -n 1)"
}

# The places that programs write to are this script's own, and empty.
hosts_furnish()
{
    mount -t tmpfs -o mode=755 hosts /run && mkdir -p /run/tmp /run/netns || return
    mount -t tmpfs -o mode=1777 hosts /dev/shm || return
    hosts_dir=/run/tmp
    export TMPDIR=$hosts_dir
    # The first process of a PID namespace hears no signal that it has no handler for.
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

# The host's end of a cable to the switch, which is the script's own namespace.
hosts_cable()
{
    ip link add "$2" type veth peer name "$3" netns "$1" &&
        ip link set "$2" master br0 up
}

# hosts_link HOST INDEX LINK: make eth0 in it.
hosts_link()
{
    if [ "$3" = bond ]; then
        ip -n "$1" link add eth0 type bond mode active-backup miimon 100 || return
        for port in a b; do
            hosts_cable "$1" "port$2$port" "slave$port" &&
                ip -n "$1" link set "slave$port" master eth0 || return
        done
    else
        hosts_cable "$1" "port$2" eth0 || return
    fi
    ip -n "$1" link set lo up &&
        ip -n "$1" link set eth0 up &&
        ip -n "$1" address add "$hosts_net4.$2/24" dev eth0 || return
    # Duplicate address detection would hold the address back for a second.
    [ ! -d /proc/sys/net/ipv6 ] ||
        ip -n "$1" address add "$hosts_net6:$2/64" dev eth0 nodad
}

hosts_up()
{
    hosts_n=$1
    hosts_names=
    [ -d /sys/class/net/br0 ] || ip link add br0 type bridge || return
    # The switch itself has no address and takes no part.
    echo 1 >/proc/sys/net/ipv6/conf/br0/disable_ipv6 2>/dev/null
    ip link set br0 up || return
    echo "127.0.0.1 localhost" >$hosts_dir/hosts
    for index in $(seq "$hosts_n"); do
        ip netns add "h$index" && hosts_link "h$index" "$index" "${2:-eth}" || return
        echo "$hosts_net4.$index h$index" >>$hosts_dir/hosts
        hosts_names="$hosts_names h$index"
    done
    mount --bind $hosts_dir/hosts /etc/hosts
}

hosts_down()
{
    umount /etc/hosts
    rm -f $hosts_dir/hosts
    # A name space ends later, where a process that is about to end is still in it: its cables would have their names then.
    for port in /sys/class/net/port*; do
        [ ! -e "$port" ] || ip link del "${port##*/}"
    done
    for host in $hosts_names; do
        ip netns del "$host"
    done
    ip link del br0
    hosts_names=
}

hosts_cabled()
{
    hosts_n=2
    hosts_names="h1 h2"
    printf '127.0.0.1 localhost\n%s.1 h1\n%s.2 h2\n' $hosts_net4 $hosts_net4 >$hosts_dir/hosts
    ip netns add h1 && ip netns add h2 && mount --bind $hosts_dir/hosts /etc/hosts &&
        mkfifo /run/cable || return 99
    "$top_builddir/test/hosts/delay" h1 $hosts_net4.1/24 h2 $hosts_net4.2/24 "$1" </run/cable >/run/up 2>/run/said &
    exec 9>/run/cable
    for try in $(seq 100); do
        [ ! -s /run/up ] && [ ! -s /run/said ] || break
        sleep 0.05
    done
    [ -s /run/up ] || hosts_skip "no TAP device here: $(cat /run/said)"
}

hosts_run()
{
    hosts_command='hostname "$1" && shift && exec "$@"'
    ip netns exec "$1" unshare --uts sh -c "$hosts_command" sh "$@"
}

# Whether this machine's mpirun is one that can be told how to reach a host.
hosts_need_mpirun()
{
    [ -n "${HAVE_MPI-1}" ] || hosts_skip "built without MPI"
    [ -z "${SANITIZERS:-}" ] || hosts_skip "sanitizer builds fork their ranks"
    . "$top_srcdir/test/mpi/env.sh"
    case $mpiexec_flags in
    *oversubscribe*) ;;
    *) hosts_skip "not an mpirun whose remote shell is known how to replace" ;;
    esac
    hosts_here=$(cd "$top_srcdir/test/hosts" && pwd) || exit 99
    export HOSTS_MPIEXEC="$mpiexec"
    export OMPI_MCA_plm_rsh_agent="$hosts_here/rsh.sh" PRTE_MCA_plm_ssh_agent="$hosts_here/rsh.sh"
}

# env.sh keeps MPI on the loopback interface; here it cannot get out of the script's network.
hosts_mpirun()
{
    unset OMPI_MCA_btl OMPI_MCA_pml OMPI_MCA_btl_tcp_if_include OMPI_MCA_oob_tcp_if_include
    unset PMIX_MCA_ptl_tcp_if_include
    hosts_spec=$1
    shift
    hosts_run h1 timeout -k 10 "${TEST_TIMEOUT_S:-60}" \
        "$HOSTS_MPIEXEC" --oversubscribe --host "$hosts_spec" "$@" </dev/null
}

# Rank after rank goes to the next host of the list, and round again. No launcher looks after them,
# so that ranks may die, and sanitizers may look.
hosts_fork()
{
    hosts_list=$1
    shift
    TEST_HOSTS=$hosts_list timeout -k 10 "${TEST_TIMEOUT_S:-60}" "$@" </dev/null
}

# All jobs of a file that is written as test/mpi/run.sh wants it, their ranks dealt out over three
# hosts, forked ones over those of TEST_HOSTS; none of them may be skipped.
hosts_jobs()
{
    HOSTS_SPEC=h1:2,h2:2,h3:2 MPIEXEC=${hosts_here-}/mpiexec.sh TEST_HOSTS=${TEST_HOSTS:-h1,h2,h3} \
        "${BASH:-sh}" "$top_srcdir/test/mpi/run.sh" "$1" >/run/said 2>&1
    hosts_status=$?
    cat /run/said
    [ $hosts_status -eq 0 ] && ! grep 'SKIP' /run/said
}

# Command lines of processes other than the script, which is the first one here. What has ended has
# none any more.
hosts_processes()
{
    for hosts_process in /proc/[0-9]*; do
        [ "$hosts_process" = /proc/1 ] || tr '\0' ' ' <"$hosts_process/cmdline"
    done 2>/dev/null
}

hosts_check()
{
    # Open MPI's daemons end a little later than mpirun, and leave their empty directories, those of PRRTE all of
    # them. PMIx 5.0.1 leaves its files of a job in which ranks have died.
    for hosts_try in $(seq 50); do
        hosts_processes >/run/left
        [ -s /run/left ] || break
        sleep 0.1
    done
    find /dev/shm $hosts_dir -mindepth 1 ! -path $hosts_dir/hosts \
        ! \( -type d -path "$hosts_dir/ompi.*" \) ! -path "$hosts_dir/prterun.*" \
        ! -path "$hosts_dir/pmix-gds-shmem.*" >>/run/left
    [ -s /run/left ] || return 0
    echo "left behind: $(cat /run/left)"
    return 1
}
