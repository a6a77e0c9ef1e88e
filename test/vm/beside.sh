#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the guest: operations each of which goes over two transports that register memory, RDMA and the toy of
# test/toys: beside.sh RAIL
#
# Odd ranks have another host name. So the toy, which comes before RDMA, takes the links between two even or two
# odd ranks, and RDMA the others, which cross the rail. Without the toys' build: exit code 77.
set -u
: "${top_srcdir:?}" "${top_builddir:?names no build}"
here=$(cd "$(dirname "$0")" && pwd)
toys=$top_builddir/test/toys/work/build
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$here/over.sh" --needs "$1" || exit
if [ ! -x "$toys/test/mpi/rekey" ]; then
    echo "there is no build with the toys: test/toys/build.sh test/mpi/random test/mpi/rekey makes it"
    exit 77
fi
# shellcheck source=SCRIPTDIR/../mpi/env.sh
. "$top_srcdir/test/mpi/env.sh"
cat >"$scratch/rank" <<'END'
#!/bin/sh
case $OMPI_COMM_WORLD_RANK in
*[13579]) hostname other ;;
esac
exec "$@"
END
chmod +x "$scratch/rank"
export VM_RAILS=$1 STEPAF_TRANSPORTS=toy,verbs STEPAF_SPLIT=attn=2,ffn=2
export TEST_WRAP="unshare --uts $scratch/rank $here/ends.sh"

packets() { cat "/sys/class/net/${1}b/statistics/rx_packets"; }

# has PATTERN: the output has such a line.
has()
{
    grep -Eq -- "$1" "$scratch/out" && return
    echo "no line like: $1"
    exit 1
}

# A large and a small tensor to each FFN rank and back, in one operation: every byte is looked at, and what
# each link was given is compared with what its transport has counted.
# shellcheck disable=SC2086
mpi_run 4 $TEST_WRAP "$toys/stepaf_info" --map 2>&1 | tee "$scratch/out"
[ "${PIPESTATUS[0]}" -eq 0 ] || exit 1
has '^ID 0 +toy 1\.0M/1\.0M +verbs;[^ ]+ 1\.0M/1\.0M$'
has '^ID 1 +verbs;[^ ]+ 1\.0M/1\.0M +toy 1\.0M/1\.0M$'
has '^toy: 2 links, 2\.0M bytes pushed, 2\.0M pulled$'
has "^verbs;${1}a:1: 1 link, 1\.0M bytes pushed, 1\.0M pulled\$"
has "^verbs;${1}b:1: 1 link, 1\.0M bytes pushed, 1\.0M pulled\$"

before=$(packets "$1")
export top_builddir=$toys STEPAF_PRINT_MAP=1
sh "$top_srcdir/test/mpi/run.sh" "$here/beside.case" 2>&1 | tee "$scratch/out"
[ "${PIPESTATUS[0]}" -eq 0 ] || exit 1
has '^ID 0 +toy +verbs;[^ ]+$'
crossed=$(($(packets "$1") - before))
echo "$crossed packets over $1"
[ "$crossed" -ge 50 ]
