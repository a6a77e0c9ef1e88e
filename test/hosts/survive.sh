#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Commits on several hosts go on without ranks that have died, and on one side of a network that is cut in two; ranks
# return and join.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
[ -z "${SANITIZERS:-}" ] || hosts_skip "sanitizer builds have test/mpi/survive.case for this"
hosts_enter "$@"
survive=$top_builddir/test/mpi/survive
unset STEPAF_SPLIT STEPAF_ROLE
hosts_up 3 || exit 99
export TEST_TIMEOUT_S=60

# on HOSTS RANKS SPLIT ARGUMENT...
on()
{
    hosts=$1
    ranks=$2
    shift 2
    echo "== $hosts --split $*"
    hosts_fork "$hosts" "$survive" --procs "$ranks" --split "$@" || exit 1
}

on h1,h2,h3 3 attn=1,ffn=2 --refuse 1 --figures 1
on h1,h1,h2,h2,h3,h3 6 attn=4,ffn=2 --figures 1
on h1,h2,h3,h1,h2,h3 6 attn=3,ffn=3 --deaths 3 --figures 1 --seed 2

# back HOSTS RANKS SPLIT ARGUMENT...: killed ranks return, on the host that they were on.
back()
{
    hosts=$1
    ranks=$2
    shift 2
    echo "== back: $hosts --split $*"
    hosts_fork "$hosts" "$top_builddir/test/mpi/returns" --procs "$ranks" --split "$@" || exit 1
}
back h1,h1,h2,h2,h3,h3 6 attn=3,ffn=3 --rounds 4 --figures 1 --seed 2
# Each on another host than before.
back h1,h2,h3 6 attn=3,ffn=3 --rounds 3 --seed 2 --moves 1

# more PROGRAM HOSTS RANKS SPLIT ARGUMENT...: new ranks join.
more()
{
    program=$1
    hosts=$2
    ranks=$3
    shift 3
    echo "== more: $program $hosts --split $*"
    hosts_fork "$hosts" "$top_builddir/test/mpi/$program" --procs "$ranks" --split "$@" || exit 1
}
# On hosts of the job, and on one that has none of its ranks.
more grow h1,h2,h3 4 attn=2,ffn=2 --figures 1
more grow h1,h1,h2,h2,h3 4 attn=2,ffn=2 --figures 1 --moves 1
# With plans on streams: attention on one host and FFN on the other; and anywhere.
STEPAF_PROGRESS=thread more grow_streams h1,h2 4 attn=2,ffn=2,interleave --figures 1
STEPAF_PROGRESS=thread STEPAF_CUDA_PROXY=always more grow_streams h1,h2,h3 4 attn=2,ffn=2 --figures 1 --moves 1
# Ranks that have met over TCP, as STEPAF_MEET says, and as torchrun's variables do. Others are not told how these
# have met (STEPAF_BOOT).
export STEPAF_MEET=h1:27000
# The first to die is rank 0, where they have met.
TEST_BOOT_TCP=meet on h1,h2,h3 8 attn=4,ffn=4 --deaths 5 --seed 7
TEST_BOOT_TCP=meet back h1,h2,h3 4 attn=2,ffn=2 --rounds 2 --seed 3
TEST_BOOT_TCP=meet more grow h1,h2,h3 4 attn=2,ffn=2 --figures 1
unset STEPAF_MEET
export MASTER_ADDR=h1 MASTER_PORT=27000
TEST_BOOT_TCP=torchrun back h1,h2,h3 4 attn=2,ffn=2 --rounds 2 --seed 3
TEST_BOOT_TCP=torchrun more grow h1,h2,h3 4 attn=2,ffn=2 --figures 1
unset MASTER_ADDR MASTER_PORT

# The shortest there is.
export STEPAF_TCP_PEER_TIMEOUT_US=1000000
switch="nsenter --net=/proc/1/ns/net"
# cut HOSTS RANKS SPLIT APART: all to and from the last host is lost, without a word.
cut()
{
    on "$1" "$2" "$3" --apart "$4" --cut "$switch bridge link set dev port3 state disabled" \
        --mend "$switch bridge link set dev port3 state forwarding"
}
# The larger part goes on; of two halves that of the first rank.
cut h1,h1,h2,h2,h3 5 attn=2,ffn=3 1
cut h1,h2,h3,h3 4 attn=2,ffn=2,interleave 2
hosts_check
