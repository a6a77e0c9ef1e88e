#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hosts by ssh, without MPI, by an ssh that only says what it was asked for: ranks and their roles, output,
# exit codes, signals, hosts that are not to be reached, and that no secret is in any command line.
set -u
. "${top_srcdir:-.}/test/launch/common.sh"
rank=$(cd "$top_builddir" && pwd)/test/launch/tcp_rank
export STEPAF_TIMEOUT_US=60000000

# On another host there is none of this environment.
# shellcheck disable=SC2016
fake ssh 'said=
for word; do said="$said<$word>"; done
echo "$said" >>"$SSH_SAYS" # in one write: hosts are started at the same time
while :; do case $1 in -*) shift ;; *) break ;; esac; done
host=$1
shift
[ "$host" != 127.0.0.2 ] || { echo "ssh: no route" >&2; exit 255; }
exec env -i PATH="$PATH" SSH_HOST="$host" RANK_OF="$SSH_SAYS" sh -c "$*"'
PATH=$bin:$PATH
export SSH_SAYS="$directory/says"
# await_ranks: all three have said "up".
await_ranks()
{
    for try in $(seq 300); do
        [ "$(grep -c up "$directory/out")" -lt 3 ] || break
        sleep 0.1
    done
}
both="--launcher ssh --hosts localhost:2,127.0.0.1:1"

# shellcheck disable=SC2086
{
    expect 0 "$run" $both --bind none -a 2 -f 1 "$rank"
    [ "$(sort "$directory/out")" = "rank 0 of 3: attention
rank 1 of 3: attention
rank 2 of 3: ffn" ] || fail "not three ranks"
    is err ''
    [ "$(wc -l <"$SSH_SAYS")" -eq 2 ] || fail "not two hosts"
    has says '<-T><-oBatchMode=yes><-oServerAliveInterval=5><-oServerAliveCountMax=4><localhost><exec .*stepaf-run --serve>$'
    lacks says 'SECRET|SPLIT|tcp_rank'

    expect 0 "$run" $both --bind none -f 1 "$rank" : -a 2 "$rank"
    [ "$(sort "$directory/out")" = "rank 0 of 3: ffn
rank 1 of 3: attention
rank 2 of 3: attention" ] || fail "not two programs"

    # Environment, numbers, directory, arguments; lines that are long, or have no end.
    # shellcheck disable=SC2016
    STEPAF_DEPTH=4 expect 0 "$run" $both --bind none --env 'A=b;c d' -a 2 -f 1 sh -c \
        'echo "$STEPAF_RANK $STEPAF_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $A $STEPAF_DEPTH $SSH_HOST ${#STEPAF_SECRET} $1 $(pwd)" "$(cat)"' \
        sh "it's"
    for line in "0 3 0/2 b;c d 4 localhost" "1 3 1/2 b;c d 4 localhost" "2 3 0/1 b;c d 4 127.0.0.1"; do
        has out "^$line 64 it's $(pwd) \$"
    done
    expect 0 "$run" $both --bind none -a 2 -f 1 sh -c 'seq -s, 800 >&2; printf end'
    [ "$(cat "$directory/out")" = endendend ] || fail "lines without an end"
    [ "$(sort -u "$directory/err" | wc -l)" -eq 1 ] || fail "lines are mixed"

    # One that fails ends all, and what they have started.
    # shellcheck disable=SC2016
    expect 7 "$run" $both --bind none -a 2 -f 1 sh -c '[ "$STEPAF_RANK" != 2 ] || exit 7; sleep 1000 & wait'
    has err '^stepaf-run: a rank on 127.0.0.1 has ended with 7: all ranks are ended$'
    # What stepaf-run says has a line of its own, whatever has come before without an end.
    # shellcheck disable=SC2016
    half='[ "$STEPAF_RANK" != 2 ] || { printf half >&"$1"; exit 7; }; sleep 1000 & wait'
    for to in 1 2; do
        for where in apart together; do
            case $where in
            apart) expect 7 "$run" $both --bind none -a 2 -f 1 sh -c "$half" sh $to ;;
            *) expect 7 sh -c 'exec "$@" 2>&1' sh "$run" $both --bind none -a 2 -f 1 sh -c "$half" sh $to
                cp "$directory/out" "$directory/err" ;;
            esac
            has err '^stepaf-run: a rank on 127.0.0.1 has ended with 7: all ranks are ended$'
            lacks err '^$'
        done
    done
    expect 127 "$run" $both --bind none -a 2 -f 1 "$directory/none"
    has err "^stepaf-run: cannot run $directory/none: No such file"
    expect 255 "$run" --launcher ssh --hosts localhost:2,127.0.0.2:1 --pass -oPort=1 \
        --bind none -a 2 -f 1 sh -c 'sleep 1000'
    has err '^ssh: no route$'
    has err '^stepaf-run: ssh to 127.0.0.2 has failed, or was cut off: all ranks are ended$'
    has says '<-oBatchMode=yes><-oPort=1><-oServerAliveInterval=5><-oServerAliveCountMax=4><localhost>'
    expect 124 "$run" $both --timeout 1 --bind none -a 2 -f 1 sh -c 'sleep 1000'
    has err '^stepaf-run: not finished after 1 s: all ranks are ended$'
    for signal in INT TERM KILL; do
        : >"$directory/out" # what has come before is not to be counted
        env --default-signal "$run" $both --bind none -a 2 -f 1 sh -c 'echo up; sleep 1000' >"$directory/out" 2>"$directory/err" &
        pid=$!
        await_ranks
        kill -s $signal $pid
        wait $pid
        code=$?
        case $signal in INT) is=130 ;; TERM) is=143 ;; *) is=137 ;; esac
        [ $code -eq $is ] || fail "after SIG$signal the exit code is $code"
    done

    # What it was started to ignore, as by nohup, or by a script that starts it beside something else, ends nothing.
    for signal in HUP INT; do
        : >"$directory/out"
        env --ignore-signal=$signal "$run" $both --bind none -a 2 -f 1 sh -c 'echo up; sleep 1; echo done' >"$directory/out" &
        pid=$!
        await_ranks
        kill -s $signal $pid
        wait $pid || fail "SIG$signal, which it is to ignore, has ended it"
        [ "$(grep -c done "$directory/out")" -eq 3 ] || fail "SIG$signal, which it is to ignore, has ended ranks"
    done

    # Ranks that ignore SIGTERM are killed.
    : >"$directory/out"
    env --default-signal timeout -s KILL 30 "$run" $both --bind none -a 2 -f 1 \
        sh -c 'trap "" TERM; echo "up $$"; exec sleep 1000' >"$directory/out" 2>"$directory/err" &
    pid=$!
    await_ranks
    kill -s TERM $pid
    wait $pid
    code=$?
    [ $code -eq 143 ] || fail "with ranks that ignore SIGTERM the exit code is $code"
    for left in $(sed -n 's/^up //p' "$directory/out"); do
        ! kill -s KILL "$left" 2>/dev/null || fail "a rank that ignores SIGTERM is left"
    done

    # More hosts than the soft limit of descriptors lets it have, and than the hard one does.
    many=localhost:1$(seq -f ',127.0.1.%.0f:1' -s '' 19)
    (ulimit -S -n 40 && "$run" --launcher ssh --hosts "$many" --bind none -a 10 -f 10 true) >"$directory/out" 2>&1 ||
        fail "20 hosts with 40 descriptors: $(cat "$directory/out")"
    (ulimit -n 40 && timeout 30 "$run" --launcher ssh --hosts "$many" --bind none -a 10 -f 10 true) >"$directory/out" 2>&1
    [ $? -eq 2 ] || fail "20 hosts are begun with 40 descriptors"
    has out '^stepaf-run: 20 hosts require 92 descriptors, but the limit of this process is 40 [(]ulimit -Hn[)]$'

    # Output that nobody reads: more than pipes hold. It ends all the same.
    # shellcheck disable=SC2016
    talk='i=0; while [ $i -lt 4000 ]; do echo "rank $STEPAF_RANK $i ............................................."; i=$((i+1)); done'
    mkfifo "$directory/fifo"
    sleep 1000 <>"$directory/fifo" &
    holder=$!
    began=$(date +%s)
    timeout -k 5 60 "$run" $both --timeout 2 --bind none -a 2 -f 1 sh -c "$talk; sleep 1000" \
        >"$directory/fifo" 2>"$directory/err"
    code=$?
    kill $holder
    [ $code -eq 124 ] || fail "with a reader that has stopped the exit code is $code"
    [ $(($(date +%s) - began)) -lt 30 ] || fail "a reader that has stopped held it up"
    has err '^stepaf-run: not finished after 2 s: all ranks are ended$'

    # So it is with a terminal, which is ready with less room than a line needs: output, and what stepaf-run says.
    if command -v python3 >/dev/null; then
        # shellcheck disable=SC2016
        timeout -k 5 60 python3 - "$run" $both --timeout 2 --bind none -a 2 -f 1 sh -c "$talk >&\$1; sleep 1000" sh \
            >"$directory/out" 2>"$directory/err" <<'END'
import os, pty, subprocess, sys
for number in "12":
    master, own = pty.openpty()
    name = {"1": "stdout", "2": "stderr"}[number]
    job = subprocess.Popen(sys.argv[1:] + [number], stdin=subprocess.DEVNULL,
                           **{**dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), name: own})
    try:
        print(job.wait(20), os.get_blocking(own))
    except subprocess.TimeoutExpired:
        print("it hangs")
        job.kill()
END
        is out '124 True
124 True'

    # Whole lines, and all of them, also where somebody else has made the output non-blocking.
        timeout -k 5 60 python3 - "$run" $both --bind none -a 2 -f 1 sh -c "$talk" >"$directory/out" 2>"$directory/err" <<'END'
import os, re, subprocess, sys, time
r, w = os.pipe()
os.set_blocking(w, False)
job = subprocess.Popen(sys.argv[1:], stdout=w, stdin=subprocess.DEVNULL)
os.close(w)
said = b""
while piece := os.read(r, 4096):
    said += piece
    time.sleep(0.001)
lines = said.decode().splitlines()
print(job.wait(), len(lines), sum(re.fullmatch(r"rank [012] [0-9]+ \.{45}", line) is not None for line in lines))
END
        is out '0 12000 12000'
    fi
}
# A host that hears nothing for longer than the last beat allows ends its ranks. A later beat counts.
# job SECONDS: what a host with one rank is sent.
job() { printf '%d\n0\0001\0001\0000\000/\000sleep\000%s\000' $((17 + ${#1})) "$1"; }
mkfifo "$directory/in"
sleep 1000 <>"$directory/in" &
holder=$!
{ job 1000; printf '\001'; } >"$directory/in"
expect 122 sh -c 'exec "$1" --serve <"$2"' sh "$run" "$directory/in"
{ job 4; printf '\003'; sleep 1; printf '\036'; } >"$directory/in" &
expect 0 sh -c 'exec "$1" --serve <"$2"' sh "$run" "$directory/in"
kill $holder
# stepaf-run sends the first beat behind the job.
fake ssh 'read -r bytes
head -c "$bytes" >"$SSH_SAYS"
head -c 1 | od -An -t u1'
expect 0 "$run" --launcher ssh --hosts localhost:2 --bind none -a 1 -f 1 true
is out '  30'
# Whoever was ended has ended, also where stepaf-run itself was killed. Processes that end while they are read
# make grep fail: only what it has found counts.
for try in $(seq 300); do
    grep -lsz "^RANK_OF=$SSH_SAYS\$" /proc/[0-9]*/environ >"$directory/left"
    [ -s "$directory/left" ] || break
    sleep 0.1
done
[ ! -s "$directory/left" ] || fail "ranks are left: $(cat "$directory/left")"
exit $failed
