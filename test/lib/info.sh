#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stepaf_info: each option shows what it promises, bad input is refused, and what the library uses
# of memory is within its bounds.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
info=$top_builddir/stepaf_info
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0

fail()
{
    echo "FAILED: $*"
    cat "$directory/out" "$directory/err"
    failed=1
}

# expect CODE OPTION...: run it, with the variable $setting if there is one; the output is in the
# files out and err.
setting=
expect()
{
    code=$1
    shift
    env ${setting:+"$setting"} "$info" "$@" >"$directory/out" 2>"$directory/err"
    is=$?
    [ "$is" -eq "$code" ] || fail "$setting stepaf_info $*: exit code $is instead of $code"
}

# has PATTERN: the output has such a line. says PATTERN: the error output has.
has()
{
    grep -Eq -- "$1" "$directory/out" || fail "no line like: $1"
}
says()
{
    grep -Eq -- "$1" "$directory/err" || fail "no error like: $1"
}

for name in $(env | sed -n 's/^\(STEPAF_[A-Z_]*\)=.*/\1/p'); do
    unset "$name"
done
version=$(sed -n 's/^version=//p' "$top_srcdir/VERSION")

expect 0
has "^stepaf $version$"
has '^shm '
has '^cores to use '
expect 0 -v
has "^stepaf $version$"
expect 0 -c
has '^STEPAF_DEPTH += 1 +buffers, default$'
expect 0 -f
has '^STEPAF_DEPTH$'
has 'Takes 1\.\.32 buffers\. Default: 1\. Must be the same'
expect 0 -t
has '^shm +can'
# without TRANSPORT MACRO FILE LIBRARY: without the library all else works, and one sentence says so. An MPI that needs
# it itself, as Debian 13's does libfabric, lets nothing start that is linked to both.
without()
{
    if ! grep -q "^#define $2 1" "$top_builddir/config.h"; then
        has "^$1 +not in this build, which was made without headers of $4\$"
        return
    fi
    if ldd "$info" 2>/dev/null | grep -q "${3%%.*}"; then
        echo "the MPI needs $4 itself: not tried without it"
        return
    fi
    : >"$directory/$3"
    setting=LD_LIBRARY_PATH=$directory${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    expect 0 -t
    has '^shm +can'
    has "^$1 +not used: used only where STEPAF_TRANSPORTS lists it\$"
    export STEPAF_TRANSPORTS=shm
    expect 0 -t
    has "^$1 +not used: STEPAF_TRANSPORTS does not list it\$"
    export STEPAF_TRANSPORTS=shm,$1
    expect 0 -t
    unset STEPAF_TRANSPORTS
    has '^shm +can'
    has "^$1 +cannot be used: no $4: "
    [ "$(grep -c "$4" "$directory/out")" -eq 1 ] || fail "more than one line of $4"
    setting=
    rm "$directory/$3"
    expect 0 -t
}
without ofi HAVE_OFI libfabric.so.1 libfabric
without ucx HAVE_UCX libucp.so.0 UCX
# takes TRANSPORT PATTERN: it is opened, and says what it takes of this machine; the map says it of each rank.
takes()
{
    grep -q "^#define HAVE_$(echo "$1" | tr '[:lower:]' '[:upper:]') 1" "$top_builddir/config.h" || return
    export STEPAF_TRANSPORTS="$1"
    expect 0 -t
    has "^$1 +can be used: $2"
    expect 0 --map --attn 1 --ffn 1
    has "^ *[01] +$3 *[0-9]"
    unset STEPAF_TRANSPORTS
}
ucx_tls=${UCX_TLS:-}
export STEPAF_OFI_PROVIDER=shm UCX_TLS=$TEST_UCX_SHM
takes ofi 'shm, domain [^ ,;]+, address [^ ,;]+(; not used: .*)?$' \
    '[^ ]+ +[^ ]*[0-9][^ ]* +(attn|ffn) .* shm, domain [^ ,;]+'
takes ucx "UCX [0-9]+\\.[0-9]+\\.[0-9]+, transports ${TEST_UCX_SHM%,self}\$" \
    '[^ ]+ +(posix|cma)/memory[^ ]* +(attn|ffn) .* UCX [0-9]+\.[0-9]+\.[0-9]+'
STEPAF_OFI_PROVIDER=nonsense
UCX_TLS=nonsense
export STEPAF_TRANSPORTS=ofi,ucx
expect 0 -t
grep -q '^#define HAVE_OFI 1' "$top_builddir/config.h" && has '^ofi +cannot be used: libfabric has no provider nonsense: '
grep -q '^#define HAVE_UCX 1' "$top_builddir/config.h" && has '^ucx +cannot be used: cannot open: '
unset STEPAF_TRANSPORTS STEPAF_OFI_PROVIDER UCX_TLS
[ -z "$ucx_tls" ] || export UCX_TLS="$ucx_tls"
# Another program's reader takes it, also with a value that has to be escaped, and knows a bad one.
if ! grep -q '^#define HAVE_JANSSON 1' "$top_builddir/config.h"; then
    expect 1 --json
    grep -q 'requires jansson' "$directory/err" || fail "--json without jansson"
elif command -v python3 >/dev/null; then
    json()
    {
        python3 -c "import json, sys
j = json.load(open(sys.argv[1]))
s = {i['name']: i for i in j['settings']}
t = {i['name']: i for i in j['transports']}
f = {i['name']: i for i in j['found']}
assert $1, j" "$directory/out" 2>"$directory/err" || fail "--json: not so: $1"
    }
    expect 0 --json
    json "j['version'] == '$version' and t['shm']['usable'] and f['hwloc']['found']"
    json "s['STEPAF_DEPTH']['value'] == '1' and not s['STEPAF_DEPTH']['from_environment']"
    setting='STEPAF_SECRET_FILE=a"b\c'
    expect 0 --json
    json "s['STEPAF_SECRET_FILE']['value'] == 'a\"b' + chr(92) + 'c'"
    setting=STEPAF_DEPTH=99
    expect 1 --json
    json "'99' in s['STEPAF_DEPTH']['error']"
    setting=STEPAF_TRANSPORTS=tcp
    expect 0 --json
    json "not t['shm']['usable'] and 'STEPAF_TRANSPORTS' in t['shm']['detail']"
    setting=
fi
expect 2 --json -c
expect 0 --topology
has '^Machine'
has 'PU '
# Devices are those of sysfs: hwloc's plugins for GPUs start these GPUs' drivers in the process.
setting=HWLOC_COMPONENTS_VERBOSE=1
expect 0 --topology
says 'Final list of enabled discovery components: linux'
! grep 'Final list' "$directory/err" | grep -Eq '[^a-z](pci|opencl|cuda|nvml|rsmi|levelzero|gl)[(]' ||
    fail "hwloc has a component for devices beside that of Linux"
setting=

setting=STEPAF_DEPTH=3
expect 0 -c
has '^STEPAF_DEPTH += 3 +buffers, from the environment$'
expect 0
has '^STEPAF_DEPTH += 3 '
setting=STEPAF_TRANSPORTS=none
expect 0 -t
has '^shm +not used'
setting=STEPAF_DEPTH=33
expect 1 -c
says 'STEPAF_DEPTH=33: out of range; it takes 1\.\.32'
has '^STEPAF_DEPTH += \(bad value\) +STEPAF_DEPTH=33: out of range; it takes 1\.\.32 buffers$'
has '^STEPAF_TIMEOUT_US += 10000000 '
STEPAF_MESH=round
export STEPAF_MESH
expect 1 -c
says 'STEPAF_DEPTH=33: out of range'
has '^STEPAF_MESH += \(bad value\) +STEPAF_MESH=round: not one of its words; '
[ "$(wc -l <"$directory/err")" -eq 2 ] || fail "two bad values are not two lines"
expect 1
has '^STEPAF_MESH += \(bad value\) '
unset STEPAF_MESH
expect 1 -t
says 'STEPAF_DEPTH=33: out of range'
has '^shm +can'
expect 0 -f
setting=STEPAF_DEPHT=3
expect 0 -c
says 'STEPAF_DEPHT is not a setting'
export STEPAF_MESH=round
expect 1 -c
says 'STEPAF_MESH=round: not one of its words'
says 'STEPAF_DEPHT is not a setting'
unset STEPAF_MESH
# Other parts of the project have these: the modulefile, stepaf-accept.
setting=STEPAF_ROOT=/
export STEPAF_ACCEPT_BIN=/
expect 0 -c
[ ! -s "$directory/err" ] || fail "a warning of variables that are the project's"
unset STEPAF_ACCEPT_BIN

setting=
expect 2 --nonsense
expect 2 surplus
expect 2 --memory --keys 0
says "--keys '0' is not a number from 1 to 4096"
expect 2 --memory --attn 2x
says "--attn '2x' is not a number from 1 to 512"
for bytes in K 0K 8KK 8G 2M 1025K 9000000000000M; do
    expect 2 --memory --bytes $bytes
    says "--bytes '$bytes' is not a number from 1 to 1048576"
done
expect 2 --memory --keys 8K
expect 2 --keys 3
says '--keys needs --memory$'
expect 2 --map --bytes 5
says '--bytes needs --memory$'
expect 2 -c --ffn 3
says '--ffn needs --memory or --map$'
if [ -w /dev/full ]; then
    "$info" -f >/dev/full 2>/dev/null && fail "a full disk goes unnoticed"
    "$info" --map >/dev/full 2>/dev/null && fail "a full disk goes unnoticed by --map"
fi

# The map: shared memory, fragments through a ring, TCP; its bytes are those that were pushed.
expect 0 --map
has '^ 0  .* attn '
has '^ID 1 +shm;(cma|ring) 1\.0M/1\.0M  shm;'
has '^shm;(cma|ring): 4 links, 4\.0M bytes pushed, 4\.0M pulled$'
setting=STEPAF_SHM_CMA=off
expect 0 --map --attn 1 --ffn 3
has '^shm;ring: 3 links, 3\.0M bytes pushed, 3\.0M pulled$'
setting=STEPAF_TRANSPORTS=tcp
expect 0 --map --attn 3 --ffn 1
has '^tcp;[^ ]+ on 3 links .* instead of shm: STEPAF_TRANSPORTS does not list it(;|$)'
setting=STEPAF_SPLIT=attn=1,ffn=2
expect 1 --map
says 'map: .*split'
setting=SLURM_STEP_NUM_TASKS=4
expect 1 --map
says 'srun has started 4 processes .*: start it with srun --mpi=pmix$'
setting=STEPAF_TRANSPORTS=nonsense
expect 1 --map
says 'is not a transport of this build'
setting=
if grep -q '^#define HAVE_MPI 1' "$top_builddir/config.h" && [ -z "${SANITIZERS:-}" ]; then
    . "$top_srcdir/test/mpi/env.sh"
    mpi_run 5 "$info" --map >"$directory/out" 2>"$directory/err" || fail "mpirun stepaf_info --map"
    has '3 attention and 2 FFN ranks on 1 node'
    has '^shm;(cma|ring): 6 links, 6\.0M bytes pushed, 6\.0M pulled$'
    STEPAF_SPLIT=attn=1,ffn=3,interleave
    export STEPAF_SPLIT
    mpi_run 4 "$info" --map >"$directory/out" 2>"$directory/err" || fail "mpirun with a split"
    has '1 attention and 3 FFN ranks on 1 node'
    # Two nodes, by the host name: shared memory within each, TCP between them.
    if unshare --uts true 2>/dev/null; then
        STEPAF_SPLIT=attn=2,ffn=2,interleave
        export STEPAF_SPLIT STEPAF_NET_IF=lo
        mpi_run 2 "$info" --map : -n 2 \
            unshare --uts sh -c 'hostname other && exec "$0" --map' "$info" \
            >"$directory/out" 2>"$directory/err" || fail "mpirun on two nodes"
        has '2 attention and 2 FFN ranks on 2 nodes'
        has '^ID 0 +shm;[^ ]+ 1\.0M/1\.0M +tcp;lo 1\.0M/1\.0M$'
        has '^ID 1 +tcp;lo 1\.0M/1\.0M +shm;[^ ]+ 1\.0M/1\.0M$'
        has '^shm;(cma|ring): 2 links, 2\.0M bytes pushed, 2\.0M pulled$'
        has '^tcp;lo on 2 links \(attention 0 - FFN 1 first\) instead of shm: on another node'
        unset STEPAF_NET_IF
    else
        echo "two nodes: not tried, no permission for a UTS namespace"
    fi
    unset STEPAF_SPLIT
fi

expect 0 --memory --attn 1 --ffn 1 --bytes 8K
has '8 keys of 8192 bytes each way, depth 1'
# The bounds: 8 KiB a peer, 264 bytes a key and peer.
for job in '--attn 1 --ffn 1 --keys 1 --bytes 1M' '--attn 2 --ffn 2' '--attn 3 --ffn 1 --keys 20'; do
    # shellcheck disable=SC2086
    expect 0 --memory $job
    cat "$directory/out"
    awk '/^ *[0-9]+ (attention|ffn) +[0-9]/ {
             ranks++
             if ($3 == 0 || $6 == 0 || $6 > 8192 || $8 == 0 || $9 > 264)
                 bad = 1
         }
         END { exit bad || !ranks }' "$directory/out" || fail "too much memory: $job"
done

# A host name may have 64 characters (HOST_NAME_MAX); two that differ in the last one are two nodes.
if unshare --uts true 2>/dev/null; then
    long=$(printf '%063d' 0)
    for last in a b; do
        unshare --uts sh -c 'hostname "$1" && exec "$0"' "$info" "$long$last" >"$directory/out" 2>"$directory/err"
        has "^node +$long$last "
        sed -n 's/^node .*(id/id/p' "$directory/out" >"$directory/$last"
        grep -q '^#define HAVE_JANSSON 1' "$top_builddir/config.h" || continue
        unshare --uts sh -c 'hostname "$1" && exec "$0" --json settings' "$top_builddir/stepaf_doctor" "$long$last" \
            >"$directory/out" 2>"$directory/err"
        has "\"hosts\": \"$long$last\""
    done
    ! cmp -s "$directory/a" "$directory/b" || fail "two hosts with long names are one node"
else
    echo "a long host name: not tried, no permission for a UTS namespace"
fi

# A job whose processes cannot all be had ends at once, rather than with the deadline of those that there are. The limit
# does not bind root, so that root takes a user of whom no process runs.
user=64123
while pgrep -U $user >/dev/null && [ $user -lt 64200 ]; do
    user=$((user + 1))
done
if [ "$(id -u)" -eq 0 ] && [ -z "${SANITIZERS:-}" ] && setpriv --reuid $user --clear-groups "$info" -v >/dev/null 2>&1; then
    for what in --map --memory; do
        STEPAF_INIT_TIMEOUT_US=3600000000 timeout -k 5 60 prlimit --nproc=3 setpriv --reuid $user --clear-groups \
            "$info" $what >"$directory/out" 2>"$directory/err"
        is=$?
        [ $is -eq 1 ] || fail "stepaf_info $what without processes: exit code $is instead of 1"
        says '^stepaf_info: fork: '
    done
else
    echo "processes that cannot be had: not tried, it takes root and files that others may read"
fi
exit $failed
