#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What stepaf-run does on a rank, "stepaf-run --exec": cores, GPU, role and program, with the
# variables of launchers that are not there.
set -u
. "${top_srcdir:-.}/test/launch/common.sh"

# What prints the cores that a process was left with.
mine='sed -n s/^Cpus_allowed_list:.//p /proc/self/status'
all=$($mine)
first=${all%%[-,]*}

# cores_of LIST: one a line.
cores_of()
{
    echo "$1" | tr ',' '\n' | while IFS=- read -r from to; do
        seq "$from" "${to:-$from}"
    done
}

# rank LOCAL SIZE SPEC COMMAND...: as Open MPI would start it.
rank()
{
    local=$1
    size=$2
    shift 2
    expect 0 env OMPI_COMM_WORLD_LOCAL_RANK="$local" OMPI_COMM_WORLD_LOCAL_SIZE="$size" $setting \
        "$run" --exec "$@"
}
setting=

# One rank has everything that there is, two have a share each, and together no core twice.
rank 0 1 bind=none $mine
is out "$all"
rank 0 1 bind=core $mine
is out "$all"
if [ "$(cores_of "$all" | wc -l)" -ge 2 ]; then
    is_short=
    rank 0 2 bind=core $mine
    one=$(cat "$directory/out")
    grep -q 'share' "$directory/err" && is_short=1
    rank 1 2 bind=core $mine
    two=$(cat "$directory/out")
    is err ''
    if [ -n "$is_short" ]; then
        echo "a quota of this container leaves less than two cores' time: shares are not looked at"
    else
        twice=$( (cores_of "$one" && cores_of "$two") | sort | uniq -d)
        [ -z "$twice" ] || fail "both $one and $two have $twice"
        for core in $(cores_of "$one,$two"); do
            cores_of "$all" | grep -qx "$core" || fail "core $core is not in $all"
        done
    fi
fi

# The affinity mask is a limit; ranks that outnumber it are not bound, which the first one tells.
expect 0 env MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1 taskset -c "$first" "$run" --exec bind=numa $mine
is out "$first"
expect 0 env MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 taskset -c "$first" "$run" --exec bind=core $mine
is out "$first"
is err 'stepaf-run: 2 ranks share 1 processors here: they are not bound'
expect 0 env MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 taskset -c "$first" "$run" --exec bind=core $mine
is err ''
expect 0 env MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 taskset -c "$first" "$run" --exec bind=auto $mine
is err ''
expect 0 env SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE='3,2(x2)' \
    taskset -c "$first" "$run" --exec bind=core,verbose true
has err ', rank 0 of 2 there: cores all, '

# No launcher: it runs all the same.
expect 0 "$run" --exec bind=core $mine
is out "$all"
has err 'no launcher sets the local rank of this process'

# GPUs, of those that are visible.
# shellcheck disable=SC2016
show='printf "%s\n" "$CUDA_VISIBLE_DEVICES/$CUDA_DEVICE_ORDER"'
setting=CUDA_VISIBLE_DEVICES=3,GPU-5
rank 0 2 bind=none,devices sh -c "$show"
is out 3/PCI_BUS_ID
rank 1 2 bind=none,devices sh -c "$show"
is out GPU-5/PCI_BUS_ID
is err ''
rank 0 3 bind=none,devices sh -c "$show"
is err 'stepaf-run: 3 ranks share 2 GPUs here'
rank 2 3 bind=none,devices sh -c "$show"
is out 3/PCI_BUS_ID
is err ''
rank 1 2 bind=auto sh -c "$show"
is out 3,GPU-5/

# The progress thread's place is the user's, if the user has said it.
setting=STEPAF_PROGRESS_CORES=$first
# shellcheck disable=SC2016
rank 0 1 bind=core sh -c 'echo "$STEPAF_PROGRESS_CORES"'
is out "$first"

# So are the RDMA devices.
setting=STEPAF_NET_DEVICES=mlx5_7:2
# shellcheck disable=SC2016
rank 0 1 bind=core,verbose sh -c 'echo "$STEPAF_NET_DEVICES"'
is out mlx5_7:2
has err ', NIC mlx5_7:2'

# Role and program.
setting=
# shellcheck disable=SC2016
role='echo "$STEPAF_ROLE $0 $*"'
rank 0 2 bind=none,role=attention sh -c "$role" x
is out 'attention x '
for number in 0 1 2; do
    setting=SLURM_PROCID=$number
    rank 0 1 bind=none,program=attention:2:6,program=ffn:1:5 \
        sh -c "$role" attn x 'y z' sh -c "$role" ffn :
    case $number in
    2) is out 'ffn ffn :' ;;
    *) is out 'attention attn x y z' ;;
    esac
done
setting=OMPI_COMM_WORLD_RANK=2
rank 0 1 bind=none,program=attention:2:1,program=ffn:1:5 false sh -c "$role" ffn :
is out 'ffn ffn :'
setting=SLURM_PROCID=3
expect 2 env $setting "$run" --exec bind=none,program=attention:2:1,program=ffn:1:1 a b
is err 'stepaf-run: rank 3 has no program'
expect 2 env SLURM_PROCID=0 "$run" --exec bind=none,program=attention:2:3,program=ffn:1:1 a b
is err 'stepaf-run: rank 0 has no program'
expect 2 "$run" --exec bind=none,program=attention:2:1 a
has err 'SLURM_PROCID'

expect 5 "$run" --exec bind=none sh -c 'exit 5'
expect 127 "$run" --exec bind=none stepaf-no-such-program
is err 'stepaf-run: cannot run stepaf-no-such-program: No such file or directory'
# The code tells it even where the sentence cannot be written.
expect 127 sh -c '"$0" --exec bind=none stepaf-no-such-program 2>/dev/full' "$run"
expect 126 "$run" --exec bind=none /
is err 'stepaf-run: cannot run /: Permission denied'
expect 2 "$run" --exec
expect 2 "$run" --exec bind=none
is err 'stepaf-run: --exec: no program is given'
expect 2 "$run" --exec bind=socket true
has err "stepaf-run: --exec bind=socket: this is for stepaf-run's own use"
exit $failed
