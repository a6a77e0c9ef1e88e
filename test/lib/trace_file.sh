#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# STEPAF_TRACE_FILE: the ranks of a program leave one file, in which pushes and answers are joined to batches; with
# STEPAF_TRACE_SIGNAL one at each signal. STEPAF_LOG_LEVEL=debug says by what ranks are connected, trace each message.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
skip() { echo "skipped: $1"; exit 77; }
command -v python3 >/dev/null || skip "there is no python3"
perf=$top_builddir/stepaf_perf
[ -x "$perf" ] || skip "stepaf_perf is not built"
directory=$(mktemp -d) || exit 99
job=
trap '[ -z "$job" ] || kill "$job" 2>/dev/null; rm -rf "$directory"' EXIT
unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_RANK PMI_SIZE MPI_LOCALRANKID STEPAF_SPLIT STEPAF_ROLE STEPAF_TRANSPORTS
fail() { echo "FAIL: $1"; cat "$directory/err"; exit 1; }

# run FILE WORD...: two attention ranks and an FFN rank, two operations of each in flight. Pushes of up to 4 KiB
# are stamped once they are posted, which may be after their arrival: these are larger.
run()
{
    file=$1
    shift
    STEPAF_TRACE_FILE=$file timeout -k 10 60 "$perf" af --procs 3 --split attn=2,ffn=1 --size 8K,12K --iters 40 \
        --warmup 0 --rounds 2 --no-floor -d 2 "$@" >"$directory/out" 2>"$directory/err"
}

# A file that is there is begun anew.
echo '[{"old": 1}]' >"$directory/trace.json"
for transport in shm tcp; do
    run "$directory/trace.json" --transport $transport || fail "$transport: exit code $?"
    [ ! -s "$directory/err" ] || fail "$transport: something was said"
    python3 - "$directory/trace.json" <<'END' 2>"$directory/err" || fail "$transport: the file is not as it should be"
import json, os, sys
with open(sys.argv[1], encoding="utf-8") as file:
    events = json.load(file)
names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
assert sorted(names) == [0, 1, 2], names
assert [names[p].split(" (")[0] for p in range(3)] == ["attention 0", "attention 1", "FFN 0"], names
tracks = {}
for e in events:
    if e["ph"] == "X":
        tracks.setdefault((e["pid"], e["tid"], e["name"]), []).append((e["ts"], e["ts"] + e["dur"]))
named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
assert named == {(pid, tid) for pid, tid, _ in tracks}
# On a track, spans of one kind follow each other.
for track, spans in tracks.items():
    spans.sort()
    assert all(b[0] >= a[1] - 0.002 for a, b in zip(spans, spans[1:])), track
ends = {phase: {e["id"]: e for e in events if e["ph"] == phase} for phase in "sf"}
count = {phase: sum(e["ph"] == phase for e in events) for phase in "sf"}
assert all(count[phase] == len(ends[phase]) for phase in "sf"), "two arrows with one number"
assert ends["s"].keys() == ends["f"].keys(), "an arrow has one end"
# A push is stamped behind its post, which sanitizers make slow: the peer may have been quicker. It is now and then where
# the processor is taken away in between.
slack = 20 if os.environ.get("SANITIZERS") else 0.002
backwards = [(s, ends["f"][key]) for key, s in ends["s"].items() if s["ts"] > ends["f"][key]["ts"] + slack]
assert all(s["name"] == "push" and s["ts"] < f["ts"] + 20000 for s, f in backwards), backwards
assert len(backwards) * 50 <= sum(s["name"] == "push" for s in ends["s"].values()), backwards
for key, start in ends["s"].items():
    end = ends["f"][key]
    assert start["name"] == end["name"], (start, end)
    assert (2 in (start["pid"], end["pid"])) and start["pid"] != end["pid"]
# Each end is within a span: that is how viewers find it.
inside = {"pushs": "operation", "pushf": "batch", "answers": "batch", "answerf": "operation"}
for phase in "sf":
    for e in ends[phase].values():
        spans = tracks[e["pid"], e["tid"], inside[e["name"] + phase]]
        assert any(a - 0.002 <= e["ts"] <= b + 0.002 for a, b in spans), e
operations = sum(len(spans) for (_, _, name), spans in tracks.items() if name == "operation")
batches = sum(len(spans) for (_, _, name), spans in tracks.items() if name == "batch")
assert operations == batches and len(ends["s"]) == 2 * operations, (operations, batches)
assert operations >= 2 * 2 * 40, operations
assert {e["tid"] for e in events if e["ph"] == "X" and e["pid"] == 2} != set()
END
done
grep -q '1 more in flight' "$directory/trace.json" || fail "operations in flight together share a track"

# A name that cannot be written is told before anything is done; a full disk is no reason to fail.
run "$directory/none/trace.json" && fail "a name that cannot be written was taken"
grep -q "STEPAF_TRACE_FILE=$directory/none/trace.json: No such file.*STEPAF_ERR_SETTING" "$directory/err" ||
    fail "no sentence"
if [ -w /dev/full ]; then
    run /dev/full || fail "a full disk: exit code $?"
    grep -q 'STEPAF_TRACE_FILE=/dev/full: world rank [0-2] has not added its events: No space left' "$directory/err" ||
        fail "a full disk is not told of"
fi
# Without traces there is nothing to write.
STEPAF_TRACE=off run "$directory/off.json" || fail "STEPAF_TRACE=off: exit code $?"
[ ! -e "$directory/off.json" ] || fail "STEPAF_TRACE=off has left a file"

# At a signal each rank adds what it has to a file with a number: traces of before are gone.
for n in 1 2 3; do
    printf '[\n\n]\n' >"$directory/at.json.$n"
done
echo 'a note' >"$directory/at.json.4"
STEPAF_TRACE_SIGNAL=usr1 STEPAF_TRACE_FILE=$directory/at.json STEPAF_LOG_LEVEL=debug timeout -k 10 120 "$perf" af --procs 3 \
    --split attn=2,ffn=1 --size 8K --iters 100000000 --max-time 100 --no-floor --transport shm >"$directory/out" 2>"$directory/err" &
job=$!
pids() { awk '$1 == "#" && $4 ~ /^(attention|ffn)$/ { print $6 }' "$directory/out"; }
# has N: whether all ranks are in the file of the signal.
has() { [ "$(grep -c '"process_name"' "$directory/at.json.$1" 2>/dev/null)" = 3 ]; }
# await WORD...: until it holds.
await()
{
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] && kill -0 "$job" 2>/dev/null || fail "never: $*"
        sleep 0.1
    done
}
ranks() { [ "$(pids | wc -l)" = 3 ] && [ "$(grep -c 'is connected by' "$directory/err")" = 4 ]; }
await ranks
[ ! -e "$directory/at.json.1" ] && [ ! -e "$directory/at.json.3" ] || fail "what an earlier job has left is there"
[ "$(cat "$directory/at.json.4")" = 'a note' ] || fail "what is no trace is gone"
for n in 1 2; do
    # shellcheck disable=SC2046
    kill -USR1 $(pids)
    await has $n
done
kill -0 "$job" || fail "a signal has ended the job"
for n in 1 2; do
    python3 -c '
import json, sys
events = json.load(open(sys.argv[1], encoding="utf-8"))
assert {e["pid"] for e in events if e["name"] == "operation"} == {0, 1}
assert {e["pid"] for e in events if e["name"] == "batch"} == {2}' "$directory/at.json.$n" || fail "signal $n"
done
grep -q 'FFN rank 0 (world rank 2) is connected by shm;[a-z]*.*, the best one available' "$directory/err" ||
    fail "it is not said by what ranks are connected"
kill "$job"
wait "$job"
job=
# Each message is in the log of both ends, those of 32 bits too.
for transport in shm tcp; do
    STEPAF_LOG_LEVEL=trace run "$directory/log.json" --transport $transport || fail "$transport: exit code $?"
    # said WHERE TYPE: how many lines.
    said() { grep -c "TRACE $1 .*: $2, plan [0-9]*, sequence " "$directory/err"; }
    for type in START RESPONSE PLAN; do
        case $type in
        RESPONSE) to='to attention rank' from='from FFN rank' ;;
        *) to='to FFN rank' from='from attention rank' ;;
        esac
        n=$(said "$to" $type)
        [ "$n" -ge 2 ] && [ "$n" = "$(said "$from" $type)" ] || fail "$transport: $n $type went, $(said "$from" $type) came"
    done
    [ "$(said 'to FFN rank' START)" -ge 160 ] || fail "$transport: not each operation is in the log"
    grep -q 'to FFN rank 0 (world rank 2): START, .*, after 1 writes of 12288 bytes' "$directory/err" || fail "$transport: no bytes"
done
# Without a file there is nothing to do, which is said.
STEPAF_TRACE_SIGNAL=usr1 run ""
grep -q 'STEPAF_TRACE_SIGNAL does nothing: STEPAF_TRACE_FILE is not set' "$directory/err" || fail "no warning"
