#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A transport and a device that are added as their READMEs say (build.sh) carry jobs.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
build=$top_builddir/test/toys/work/build
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0

for name in $(env | sed -n 's/^\(STEPAF_[A-Z_]*\)=.*/\1/p'); do
    unset "$name"
done
programs=
! grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h" || programs="test/mpi/random test/mpi/rekey"
# shellcheck disable=SC2086
sh "$top_srcdir/test/toys/build.sh" $programs >"$directory/build" 2>&1
status=$?
[ $status -eq 0 ] || { tail -n 40 "$directory/build"; exit $status; }
STEPAF_TRANSPORTS=toy
export STEPAF_TRANSPORTS

fail()
{
    echo "FAILED: $*"
    cat "$directory/out" "$directory/err"
    failed=1
}

# expect CODE COMMAND...: run it. has PATTERN, says PATTERN: its output, its errors have such a line.
expect()
{
    code=$1
    shift
    timeout -k 5 60 "$@" >"$directory/out" 2>"$directory/err"
    is=$?
    [ $is -eq "$code" ] || fail "$*: exit code $is instead of $code"
}
has() { grep -Eq -- "$1" "$directory/out" || fail "no line like: $1"; }
says() { grep -Eq -- "$1" "$directory/err" || fail "no error like: $1"; }

# pair OPTION...: "stream" on two ranks, the second by the command $far. What the first says comes behind the other's, so
# that lines are whole.
far=
pair()
{
    STEPAF_LOCAL_RANK=0 timeout -k 5 60 "$build/test/toys/stream" "$@" \
        >"$directory/first.out" 2>"$directory/first.err" &
    # shellcheck disable=SC2086
    STEPAF_LOCAL_RANK=1 timeout -k 5 60 $far "$build/test/toys/stream" "$@"
    second=$?
    wait $!
    first=$?
    cat "$directory/first.out"
    cat "$directory/first.err" >&2
    [ $first -eq 0 ] && [ $second -eq 0 ]
}
expect_pair()
{
    code=$1
    shift
    (pair "$@") >"$directory/out" 2>"$directory/err"
    is=$?
    [ $is -eq "$code" ] || fail "two ranks of stream $*: exit code $is instead of $code"
}

# Every byte that is pushed and pulled is looked at, and counted by the transport.
expect 0 "$build/stepaf_info" -t
has '^toy +can be used'
expect 0 "$build/stepaf_info" --map --attn 1 --ffn 1
has '^ID 0 +toy 1\.0M/1\.0M$'
has '^toy: 1 link, 1\.0M bytes pushed, 1\.0M pulled$'
expect 0 "$build/stepaf_info" --map --attn 2 --ffn 3
has '^toy: 6 links, 6\.0M bytes pushed, 6\.0M pulled$'

# The device: by itself, and with its tensors going over the transport.
expect 0 "$build/stepaf_info"
has '^GPU +CPU device '
export STEPAF_SPLIT=attn=1,ffn=1 STEPAF_LOCAL_SIZE=2 STEPAF_LOCAL_JOB="toys-$$"
export STEPAF_PRINT_MAP=1
expect_pair 0
has '^20 operations on a stream, 20 of the host$'
says '^ID 0 +toy,cuda_ipc$'
export STEPAF_PROGRESS=thread
STEPAF_CUDA_PROXY=always
export STEPAF_CUDA_PROXY
expect_pair 0 --alone
has '^20 operations on a stream, 0 of the host$'
says '^ID 0 +toy,cuda_proxy$'
unset STEPAF_CUDA_PROXY

# A peer that the transport does not reach is named, with the reason; another transport takes it.
if unshare --uts true 2>/dev/null; then
    echo 'hostname other && exec "$@"' >"$directory/other.sh"
    far="unshare --uts sh $directory/other.sh"
    expect_pair 1 --alone
    says 'STEPAF_ERR_NO_TRANSPORT: no transport reaches FFN rank 0 .*; toy: on another node'
    export STEPAF_TRANSPORTS=toy,tcp STEPAF_NET_IF=lo
    expect_pair 0 --alone
    says '^ID 0 +tcp;lo,cuda_proxy$'
    says '; toy: on another node;'
else
    echo "two nodes: not tried, no permission for a UTS namespace"
fi

# Beside another transport that registers memory, RDMA by a network card made of software: links of one operation go over
# the one and the other. The toy takes the links between ranks of one host name, RDMA those to odd ranks, which have
# another. Every byte is looked at, and what each link was given is compared with what its transport has counted.
softnic=$top_builddir/test/softnic/.libs/softnic.so
if [ -z "$programs" ] || [ ! -f "$softnic" ]; then
    echo "beside RDMA: not tried, without MPI or libibverbs"
elif [ -z "$far" ]; then
    echo "beside RDMA: not tried, no permission for a UTS namespace"
else
    cat >"$directory/rank" <<'END'
case ${OMPI_COMM_WORLD_RANK-${PMI_RANK-}} in
*[13579]) hostname other ;;
esac
export LD_PRELOAD="$SOFTNIC"
exec "$@"
END
    cat >"$directory/ranks" <<'END'
. "$top_srcdir/test/mpi/env.sh"
mpi_run 4 unshare --uts sh "$RANK" "$@"
END
    unset STEPAF_PROGRESS STEPAF_LOCAL_SIZE STEPAF_LOCAL_JOB
    SOFTNIC=$(cd "$top_builddir/test/softnic/.libs" && pwd)/softnic.so
    RANK=$directory/rank
    export top_srcdir SOFTNIC RANK STEPAF_TRANSPORTS=toy,verbs STEPAF_SPLIT=attn=2,ffn=2
    expect 0 sh "$directory/ranks" "$build/stepaf_info" --map
    has '^ID 0 +toy 1\.0M/1\.0M +verbs;[^ ]+ 1\.0M/1\.0M$'
    has '^ID 1 +verbs;[^ ]+ 1\.0M/1\.0M +toy 1\.0M/1\.0M$'
    has '^toy: 2 links, 2\.0M bytes pushed, 2\.0M pulled$'
    has '^verbs;softnic0:1: 2 links, 2\.0M bytes pushed, 2\.0M pulled$'
    expect 0 sh "$directory/ranks" "$build/test/mpi/random" --seed 21 --ops 2000
    expect 0 sh "$directory/ranks" "$build/test/mpi/rekey" --rounds 5
fi
exit $failed
