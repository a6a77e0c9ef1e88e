#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stepaf_doctor: each finding of doctor.list appears where a tree of files asks for it, and a machine without fault
# has none; what cannot be read has never passed; garbage in any file harms nothing; options, exit codes, JSON;
# ranks that differ.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
doctor=$top_builddir/stepaf_doctor
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0
out=$directory/out
base=$directory/base
tree=$directory/tree

fail()
{
    echo "FAILED: $*"
    cat "$out" "$out.err"
    failed=1
}

for name in $(env | sed -n 's/^\(STEPAF_[A-Z_]*\|OMPI_COMM[A-Z_]*\|PMI[A-Z_]*\|SLURM[A-Z_]*\|TORCH[A-Z_]*\)=.*/\1/p'); do
    unset "$name"
done

# look CODE ARGUMENT...: run it on the tree.
look()
{
    code=$1
    shift
    "$doctor" --root "$tree" "$@" >"$out" 2>"$out.err"
    is=$?
    [ $is -eq "$code" ] && [ ! -s "$out.err" ] || fail "$*: exit code $is instead of $code"
}

# The commands of the list, done in $into.
put()
{
    parent=$into${1%/*}
    [ -d "$parent" ] || mkdir -p "$parent"
    # shellcheck disable=SC2059
    printf -- "$2" >"$into$1"
}
link()
{
    [ -d "$into${1%/*}" ] || mkdir -p "$into${1%/*}"
    ln -sfn "$2" "$into$1"
}
acs()
{
    # shellcheck disable=SC2059
    { head -c 256 /dev/zero; printf "\r\000\001\000\000\000\\$2\000"; head -c 3832 /dev/zero; } >"$into$1"
}

# want STATE CHECK PATTERN: of the tree as it is now.
want()
{
    case $1 in
    failed) look 1 "$2" ;;
    *) look 0 "$2" ;;
    esac
    grep -q "^$1 *$2 .*$3" "$out" || fail "not $1 $2: $3"
}

# restore: make the tree the base again where it was touched.
touched=
restore()
{
    # shellcheck disable=SC2086
    set -- $touched
    touched=
    [ -d "$tree" ] || cp -a "$base" "$tree"
    [ $# -gt 0 ] || return 0
    (
        cd "$tree" || exit
        for path; do
            echo ".$path"
        done | xargs rm -rf
        cd "$base" || exit
        for path; do
            # What the base does not have is gone.
            [ ! -e ".$path" ] && [ ! -L ".$path" ] || echo ".$path"
        done | sort -u | xargs -r cp -a --parents -t "$tree"
    ) || fail "restore $*"
}

mkdir "$base"
into=$base
cases=0
is_new=
while read -r word first rest; do
    case $word in
    '' | '#'*) continue ;;
    cases)
        is_new=1
        continue
        ;;
    want)
        # shellcheck disable=SC2086
        want $first "${rest%% *}" "${rest#* }"
        cases=$((cases + 1))
        is_new=1
        continue
        ;;
    and)
        grep -q "^$first *${rest%% *} .*${rest#* }" "$out" || fail "not also $first $rest"
        continue
        ;;
    esac
    if [ -n "$is_new" ]; then
        restore
        into=$tree is_new=
    fi
    [ "$into" = "$base" ] || touched="$touched $first"
    case $word in
    put) put "$first" "$rest" ;;
    link) link "$first" "$rest" ;;
    acs) acs "$first" "$rest" ;;
    gone) rm -r "${into:?}$first" ;;
    *) fail "doctor.list has $word" ;;
    esac
done <"$top_srcdir/test/lib/doctor.list"
echo "$cases findings"
[ $cases -ge 30 ] || fail "only $cases findings"

# The base has nothing else than what has passed, and each check says something.
tree=$base
look 0
grep -q '^[0-9]* passed, 0 warned, 0 failed, 0 unknown$' "$out" || fail "the base is not without fault"
"$doctor" --list >"$out.list"
while read -r _ name _; do
    case $name in
    same | connect) continue ;;
    esac
    grep -q "^passed *$name " "$out" || fail "$name has not passed for the base"
done <"$out.list"

# Of many devices none that counts is left out: functions of other kinds, and interfaces that are down, take no space;
# what has none is unknown.
rm -rf "$tree.many" && cp -a "$base" "$tree.many"
tree=$tree.many
(
    cd "$tree/sys" || exit
    mkdir -p devices/other devices/gpu class/down
    echo 0x020000 >devices/other/class
    echo 0x030200 >devices/gpu/class
    echo 0x10de >devices/gpu/vendor
    echo down >class/down/operstate
    i=100
    while [ $i -lt 300 ]; do
        echo "$i"
        i=$((i + 1))
    done >"$directory/numbers"
    while read -r i; do
        ln -s ../../../devices/other "bus/pci/devices/0000:80:00.$i"
        ln -s ../down "class/net/aveth$i"
    done <"$directory/numbers"
)
look 0 gpu interfaces
grep -q '^passed *gpu *0000:01:00.0' "$out" && grep -q '^passed *pcie *GPU (0000:01:00.0)' "$out" &&
    grep -q '^passed *interfaces *eth0' "$out" && grep -q '^12 passed, 0 warned, 0 failed, 0 unknown' "$out" ||
    fail "of many devices those that count are not seen"
while read -r i; do
    ln -sfn ../../../devices/gpu "$tree/sys/bus/pci/devices/0000:80:00.$i"
done <"$directory/numbers"
look 1 gpu
grep -q '^unknown *gpu *201 GPUs, of which only 128 were checked' "$out" || fail "GPUs are left out, and nothing says so"
rm -r "$tree"

# A root without anything: only the settings, which are no files, have passed.
tree=$directory/empty
mkdir "$tree"
look 0
[ "$(grep '^passed' "$out")" = "passed   settings   0 are set, and none has a bad value" ] || fail "passed, of nothing"

# A misspelt setting is named, also beside a bad value; those of the modulefile and of stepaf-accept are none.
export STEPAF_TRANSPORT=tcp STEPAF_ROOT=/ STEPAF_ACCEPT_BIN=/
look 0 settings
grep -q '^warned  *settings  *STEPAF_TRANSPORT is set, but is not a setting' "$out" || fail "a misspelt setting"
[ "$(grep -c '^[a-z]*  *settings ' "$out")" -eq 1 ] || fail "more than one line of settings"
STEPAF_DEPTH=99 look 1 settings
grep -q '^warned  *settings  *STEPAF_TRANSPORT ' "$out" && grep -q '^failed  *settings ' "$out" ||
    fail "a misspelt setting and a bad value"
unset STEPAF_TRANSPORT STEPAF_ROOT STEPAF_ACCEPT_BIN

# sane: garbage has been read: a whole report, of characters that a terminal shows as they are.
sane()
{
    "$doctor" --root "$tree" >"$out" 2>"$out.err"
    is=$?
    { [ $is -le 1 ] && [ ! -s "$out.err" ] &&
        LC_ALL=C awk '/[^ -~]/ { exit bad = 1 } { last = $0 } END { exit bad || last !~ / passed, .* unknown$/ }' "$out"; } ||
        fail "garbage ($*): exit code $is"
}
# Those that read no file, but ask whether it is there or where a link leads. None isolated is an empty file.
by_presence='settings\|peermem\|namespace'

# Every file at once, then one in seven, of several kinds of garbage.
tree=$directory/tree
rm -rf "$tree" && cp -a "$base" "$tree"
find "$tree" -type f >"$directory/files"
for kind in random lines digits empty negative nul; do
    case $kind in
    random) head -c 300 /dev/urandom ;;
    empty) ;;
    digits) head -c 70000 /dev/zero | tr '\0' 9 ;;
    negative) printf -- '-9223372036854775809' ;;
    lines) head -c 9000 /dev/urandom | LC_ALL=C tr '\0-\177' '\n:/ \t,-0123456789[]()max' ;;
    nul) head -c 5000 /dev/zero ;;
    esac >"$directory/garbage"
    for part in 0 1 2 3 4; do
        case $kind in
        random | lines | digits) ;;
        *) break ;;
        esac
        # shellcheck disable=SC2046
        tee $(awk -v part=$part 'NR % 5 == part' "$directory/files") <"$directory/garbage" >/dev/null
        sane "$kind, part $part"
        cp -a "$base/." "$tree"
    done
    # shellcheck disable=SC2046
    tee $(cat "$directory/files") <"$directory/garbage" >/dev/null
    sane "$kind, all"
    [ $kind != empty ] || sed -i '/^passed *isolated /d' "$out"
    ! grep '^passed' "$out" | grep -v "^passed *\($by_presence\) " || fail "passed, of $kind"
    cp -a "$base/." "$tree"
done
# What is there, and cannot be read: directories.
rm -rf "$tree" && cp -a "$base" "$tree"
# shellcheck disable=SC2046
rm $(cat "$directory/files") && mkdir $(cat "$directory/files")
sane directories
! grep '^passed' "$out" | grep -v "^passed *\($by_presence\) " || fail "passed, of directories"

# Options.
refused()
{
    "$doctor" "$@" >"$out" 2>"$out.err"
    is=$?
    [ $is -eq 2 ] && [ -s "$out.err" ] || fail "$*: exit code $is instead of 2"
}
refused --nonsense
refused memroy
refused --root ''
refused --root "$directory/none"
refused --root "$doctor"
tree=$base
look 0 memory jitter
[ "$(grep -c '^passed' "$out")" -eq 6 ] || fail "a group and a check"
look 0 --all clock
grep -q 'why: .*Deadlines' "$out" || fail "--all does not say why"
look 0 connect
grep -q '^unknown *connect .*several ranks' "$out" || fail "connect without a launcher"
# Processes of srun that are no ranks, as without --mpi=pmix.
export SLURM_STEP_NUM_TASKS=4
look 0
grep -q '^unknown *same *srun has started 4 processes' "$out" && grep -q 'srun --mpi=pmix stepaf_doctor' "$out" ||
    fail "processes that do not find each other"
! grep -q '^unknown *connect' "$out" || fail "connect was not asked for"
look 0 memory
! grep -q srun "$out" || fail "same was not asked for"
SLURM_STEP_NUM_TASKS=1 look 0
! grep -q srun "$out" || fail "one process is no several"
unset SLURM_STEP_NUM_TASKS
# A full disk is told of; a limit of the size of files stands for it.
for option in '' --json --list --version; do
    [ "$option" != --json ] || grep -q '^#define HAVE_JANSSON 1' "$top_builddir/config.h" || continue
    # shellcheck disable=SC2086
    said=$(trap '' XFSZ; ulimit -f 0; "$doctor" --root "$base" $option 2>&1 >"$directory/full")
    is=$?
    case $is/$said in
    '1/stepaf_doctor: standard output: '*) ;;
    *) fail "a full disk, $option: exit code $is, it says '$said'" ;;
    esac
done
# Of this machine: what it is is not known here, but nothing hangs or fails to be said.
tree=
"$doctor" ptrace attach shm memory >"$out" 2>"$out.err"
[ $? -le 1 ] && [ ! -s "$out.err" ] && [ "$(grep -c '^[a-z]* *\(ptrace\|attach\|shm\|memory\) ' "$out")" -eq 4 ] ||
    fail "this machine"
! grep -q '^unknown *attach' "$out" || fail "attach was not tried"

# Two ranks that differ: of two machines, by their trees.
other=$directory/other
cp -a "$base" "$other"
echo other >"$other/proc/sys/kernel/hostname"
echo 5.15.0 >"$other/proc/sys/kernel/osrelease"
echo '0.1.9, wire version 3' >"$other/tried/version"
echo '100 Gb/sec (4X EDR)' >"$other/sys/class/infiniband/mlx5_0/ports/1/rate"
printf 'Max open files  1024  4096  files\nMax locked memory  65536  65536  bytes\n' >"$other/proc/self/limits"
# ranks CODE ARGUMENT...: both, with $two in the environment of the second.
ranks()
{
    code=$1
    shift
    export STEPAF_LOCAL_SIZE=2 STEPAF_LOCAL_JOB="doctor-$$"
    # shellcheck disable=SC2086
    env STEPAF_LOCAL_RANK=1 $two "$doctor" --root "$other" "$@" >"$out.1" 2>&1 &
    STEPAF_LOCAL_RANK=0 "$doctor" --root "$base" "$@" >"$out" 2>"$out.err"
    is=$?
    wait $!
    is_1=$?
    unset STEPAF_LOCAL_SIZE STEPAF_LOCAL_JOB
    [ $is -eq "$code" ] && [ $is_1 -eq "$code" ] && [ ! -s "$out.1" ] && [ ! -s "$out.err" ] ||
        fail "ranks: exit codes $is and $is_1 instead of $code, and $(cat "$out.1")"
}
has()
{
    grep -q "^$1" "$out" || fail "ranks: no line like $1"
}
two="STEPAF_DEPTH=3 STEPAF_SPIN_US=7"
ranks 1
has '2 ranks on 2 hosts: base, other$'
has 'passed *clock *tsc$'
has 'failed *memlock *.other. 64 KiB may be locked'
has 'passed *memlock *.base. unlimited'
has 'failed *same .*libstepaf: .* (1 rank, 0 on base first); 0.1.9, wire version 3 (1 rank, 1 on other first)'
has 'warned *same .*kernel: 6.1.0-test .*; 5.15.0'
has 'warned *same .*rate of RDMA ports: Ethernet 200 Gb/sec .4X HDR. .*; Ethernet 100 Gb'
has 'warned *same .*locked memory: unlimited .*; 65536'
has 'warned *same .*open files: 65536 .*; 1024'
has 'failed *same .*STEPAF_DEPTH: 1 .*; 3 '
has 'warned *same .*STEPAF_SPIN_US: '
has 'unknown *connect .*it was not tried'
# The same host twice, and the same settings.
other=$base two=
ranks 0 ranks memory
has '2 ranks on 1 host: base$'
has 'passed *same .*settings of the library'
! grep -q connect "$out" || fail "ranks of one host were connected"
two=STEPAF_SECRET=between-us
ranks 0 ranks
! grep -q between-us "$out" || fail "the secret was shown"

# Another program's reader takes it.
if ! grep -q '^#define HAVE_JANSSON 1' "$top_builddir/config.h"; then
    "$doctor" --root "$base" --json >"$out" 2>"$out.err"
    grep -q 'requires jansson' "$out.err" || fail "--json without jansson"
elif command -v python3 >/dev/null; then
    tree=$directory/tree # of directories
    look 0 --json
    cp "$out" "$out.json"
    look 0
    python3 -c "import json, re, sys
j = json.load(open(sys.argv[1]))
f = j['findings']
assert j['hosts'] and j['ranks'] == 0 and j['unknown'] > 20, j
assert len(f) == sum(j[s] for s in ('passed', 'warned', 'failed', 'unknown')), j
assert all(i['why'] and i['found'] and i['check'] and i['group'] for i in f), j
assert any(i['check'] == 'memlock' and i['state'] == 'unknown' and 'ulimit' not in i['found'] for i in f), j
# As text it is the same.
said = [(i['state'], i['check'], i['found']) for i in f]
lines = re.findall(r'^(passed|warned|failed|unknown) +(\\S+) +(.*)\$', open(sys.argv[2]).read(), re.M)
assert lines and said == lines, (said, lines)
" "$out.json" "$out" 2>"$out.err" || fail "--json"
fi
exit $failed
