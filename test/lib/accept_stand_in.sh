#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stepaf-accept with programs and a launcher that are made up: what it ends when it is ended itself, and with which code;
# which lines of a launcher's output are ranks.
set -u
: "${top_srcdir:=.}"
fail() { echo "FAIL: $1"; sed 's/^/    /' "$directory/out"; exit 1; }
directory=$(mktemp -d) || exit 99
accept=
trap '[ -z "$accept" ] || kill "$accept" 2>/dev/null; rm -rf "$directory"' EXIT
mkdir "$directory/bin" "$directory/tmp"
export TMPDIR="$directory/tmp" STEPAF_ACCEPT_BIN="$directory/bin"

# program PATH: its text is read.
program()
{
    { echo '#!/bin/sh'; cat; } >"$1"
    chmod +x "$1"
}
# Ranks that run until they are told to end, or for longer than the test waits for anything else.
program "$directory/bin/stepaf_perf" <<END
trap 'echo told >>"$directory/ended"; exit' TERM
echo 'stepaf map'
: >"$directory/runs"
sleep 60 &
wait
echo 'by itself' >>"$directory/ended"
END
program "$directory/bin/stepaf_info" <<END
echo verbs
END
program "$directory/both" <<END
"\$@"
END
# So that --only nodes waits as well.
program "$directory/slow" <<END
exec "$directory/bin/stepaf_perf"
END

# begins LAUNCHER ARGUMENT...: in the background, where control-C is not ignored for all that.
begins()
{
    launcher=$1
    shift
    rm -f "$directory/runs" "$directory/ended"
    env --default-signal=INT,TERM,HUP sh "$top_srcdir/tools/stepaf-accept" -o "$directory/files" "$@" -- "$launcher" \
        >"$directory/out" 2>&1 &
    accept=$!
}
# await FILE: until it is there.
await()
{
    while [ ! -e "$directory/$1" ]; do
        kill -0 "$accept" 2>/dev/null || fail "it has ended by itself"
        sleep 0.1
    done
}
# ends SIGNAL CODE: it, and what it has started.
ends()
{
    kill -"$1" "$accept"
    wait "$accept"
    is=$?
    accept=
    [ $is -eq "$2" ] || fail "SIG$1: exit code $is instead of $2"
    [ "$(cat "$directory/ended" 2>&1)" = told ] || fail "SIG$1: ranks have not been ended: $(cat "$directory/ended" 2>&1)"
    [ -z "$(ls "$directory/tmp")" ] || fail "SIG$1 leaves files"
}

env --default-signal=INT true 2>/dev/null || { echo "skipped: env has no --default-signal"; exit 77; }
for signal in "TERM 143" "INT 130" "HUP 129"; do
    begins "$directory/slow" --only nodes
    await runs
    # shellcheck disable=SC2086
    ends $signal
done
# Also where a variable is set for the launcher; and a rail that has been lost is mended.
begins "$directory/both" --only rails -r A=1
await runs
ends TERM 143
begins "$directory/both" --only rail_loss -r A=1 --lose-by ": >'$directory/lost'" --restore "echo mended >'$directory/mended'"
await lost
ends TERM 143
[ -e "$directory/mended" ] || fail "the rail is not mended"
rm -f "$directory/lost"
program "$directory/tags" <<END
"\$@" | sed -u 's/^/[1,0]<stdout>:/'
END
begins "$directory/tags" --only rail_loss -r A=1 --lose-by ": >'$directory/lost'"
await lost
ends TERM 143

# A warning of ssh is no rank, on whichever of the two ways it comes; one rank is not two.
program "$directory/bin/uname" <<END
read -r node <"$directory/node"
echo "Linux \$node"
echo n2 >"$directory/node"
END
program "$directory/ssh" <<END
echo "Warning: Permanently added 'n2' (ED25519) to the list of known hosts." >&2
echo "Debian GNU/Linux 12"
for rank in \$RANKS; do PATH=$directory/bin:\$PATH "\$@" || exit; done
END
# What a launcher puts before each line is no part of it: srun -l, mpirun -l and --tag-output.
program "$directory/tagging" <<END
rank=0
while [ \$rank -lt 2 ]; do
    PATH=$directory/bin:\$PATH "\$@" | sed "s/^/\$(printf "\$TAG" \$rank)/"
    rank=\$((rank + 1))
done
END
for tag in '%d: ' ' %d: ' '[%d] ' '[1,%d]<stdout>:' '[prterun-n1-4711@1,%d]<stdout>: '; do
    echo n1 >"$directory/node"
    TAG=$tag sh "$top_srcdir/tools/stepaf-accept" -o "$directory/files" --only nodes -- "$directory/tagging" \
        >"$directory/out" 2>&1
    grep -Eq '^PASS *nodes .*n1 \(1\) n2 \(1\)' "$directory/out" || fail "the tag '$tag' is taken for a part of the line"
done
for ranks in "0 1" 0; do
    echo n1 >"$directory/node"
    RANKS=$ranks sh "$top_srcdir/tools/stepaf-accept" -o "$directory/files" --only nodes -- "$directory/ssh" \
        >"$directory/out" 2>&1
    echo "exit $?" >>"$directory/out"
    case $ranks in
    0) grep -q '^FAIL *nodes .*starts 1 ranks instead of two: n1 (1)' "$directory/out" || fail "one rank is two" ;;
    *) [ "$(grep -Ec '^PASS *nodes .*n1 \(1\) n2 \(1\)|^exit 0$' "$directory/out")" -eq 2 ] || fail "a warning is a rank" ;;
    esac
done

# The file to send in has no secret, and its owner alone may read it.
rm -rf "$directory/files"
echo n1 >"$directory/node"
(umask 022
 STEPAF_SECRET=tell-nobody SLURM_JWT=tell-nobody SLURM_A_KEY='' STEPAF_SECRET_FILE=/a/path TAG='%d: ' \
    sh "$top_srcdir/tools/stepaf-accept" -o "$directory/files" --only nodes -- "$directory/tagging" >"$directory/out" 2>&1)
tar -xzf "$directory"/files/*.tar.gz -C "$directory/files" || fail "the file cannot be read"
! grep -r 'tell-nobody' "$directory/files" || fail "the file has secrets"
for line in 'STEPAF_SECRET=(not shown)' 'SLURM_JWT=(not shown)' SLURM_A_KEY= STEPAF_SECRET_FILE=/a/path; do
    grep -Fqx "$line" "$directory"/files/*/environment.txt || fail "the environment lacks $line"
done
mode=$(stat -c %a "$directory"/files/*.tar.gz)
[ "$mode" = 600 ] || fail "the file has mode $mode"
echo ok
