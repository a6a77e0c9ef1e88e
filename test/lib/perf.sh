#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stepaf_perf without a launcher: every test runs and verifies, what is wrong is found, the files
# that it writes have what they should, and bad input is refused.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
perf=$top_builddir/stepaf_perf
if [ ! -x "$perf" ]; then
    echo "skipped: stepaf_perf is not built"
    exit 77
fi
directory=$(mktemp -d) || exit 99
trap 'rm -rf "$directory"' EXIT
failed=0
# These would make it believe that a launcher has started it.
unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_RANK PMI_SIZE MPI_LOCALRANKID
unset STEPAF_SPLIT STEPAF_ROLE STEPAF_TRANSPORTS STEPAF_NET_IF

fail()
{
    echo "FAILED: $*"
    cat "$directory/out" "$directory/err"
    failed=1
}

# expect CODE ARGUMENT...: run it, with the variable $setting if there is one; the output is in the
# files out and err.
setting=
expect()
{
    code=$1
    shift
    env ${setting:+"$setting"} timeout -k 10 120 "$perf" "$@" >"$directory/out" 2>"$directory/err"
    is=$?
    [ "$is" -eq "$code" ] || fail "stepaf_perf $*: exit code $is instead of $code"
}

# has FILE PATTERN: it has such a line.
has()
{
    grep -Eq -- "$2" "$directory/$1" || fail "no line in $1 like: $2"
}

# refuse PATTERN ARGUMENT...: exit code 2, and one line that says why.
refuse()
{
    pattern=$1
    shift
    expect 2 "$@"
    has err "$pattern"
}

# field NAME: its number in the JSON file's first object that has it.
field()
{
    sed -n "s/^ *\"$1\": \([0-9.]*\),*$/\1/p" "$directory/json" | head -n 1
}

# equal WHAT IS SHOULD
equal()
{
    [ "$2" = "$3" ] || fail "$1 is '$2' instead of '$3'"
}

# await_ranks: until those of the run in the background are listed.
await_ranks()
{
    for _ in $(seq 300); do
        ! grep -Eq '^# +[0-9]+ .* attention ' "$directory/out" || break
        sleep 0.1
    done
}

# ended_by PID [SIGNAL]: it does so within 30 s, asked by the signal again and again; else it is killed.
ended_by()
{
    for _ in $(seq 300); do
        case $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) in
        '' | Z*) return 0 ;;
        esac
        [ -z "${2:-}" ] || kill -"$2" "$1"
        sleep 0.1
    done
    kill -KILL "$1"
    return 1
}

# verified: every row of the JSON file has its bytes right.
verified()
{
    has json '"wrong_bytes": 0,'
    if grep -Eq '"wrong_bytes": ([1-9]|null)|"checked_ops": 0' "$directory/json"; then
        fail "bytes are wrong or were not checked"
    fi
}

# A build with sanitizers goes through each kind of code; what depends on the size, or waits for deadlines, is another's.
tcp_tests="af push pull push_then_pull bw rate" silent_tests="floor af"
[ -z "${TEST_LIGHT:-}" ] || tcp_tests="af rate" silent_tests=

few="--iters 60 --warmup 20 --rounds 2"
checked="--check --json $directory/json $few"
# Words are split on purpose.
# shellcheck disable=SC2086
{
    for test in af push pull push_then_pull bw rate; do
        expect 0 $test --procs 2 --size 1,100,5000 $checked
        verified
        expect 0 $test --procs 3 --split attn=2,ffn=1 --size 64 -m 3 -d 2 $checked
        verified
    done
    expect 0 af --procs 3 --split attn=1,ffn=2 --scatter --shape 7x16,1x16 --push-dtype fp8 \
        --route-topk 4 $checked
    verified
    expect 0 af --procs 3 --split attn=2,ffn=1 --recv each --release apart --memory user \
        --size 64 --trace "$directory/trace" $checked
    verified
    has json '"transport": "shm'
    has json '"floor": \{'
    has json '"name": "memcpy and flag"'
    # Rounds, a histogram and the times of each pair of ranks, for reports.
    for name in rounds_p50_us rounds_p99_us histogram peers queue_us work_us way_us processor; do
        has json "\"$name\": "
    done
    equal "the pairs of ranks" "$(grep -c '"total_us": [0-9.]*[1-9]' "$directory/json")" 2
    has trace '"name":"operation","pid":1'
    has trace '"name":"batch","pid":2'
    has trace '"ph":"f"'
    # A file of tests: each with its own options behind the command line's, all rows in one array.
    printf '%s\n' '# tests' 'af --size 64,256 --check  # and back' '' 'push --size 100 --iters 30' >"$directory/batch"
    expect 0 --procs 2 --batch "$directory/batch" --json "$directory/json" $few
    equal "the batch's heads" "$(grep -c '^# stepaf_perf .* test ' "$directory/out")" 2
    equal "the batch's rows" "$(sed -n 's/^ *"push_bytes": \([0-9]*\),/\1/p' "$directory/json" | tr '\n' ' ')" "64 256 100 "
    has out '^ +100 +0 +30 '
    for line in 'af --procs 3' 'af --csv' 'af --batch x' 'af --sizze 8' 'af push' '--size 8' 'af --size 8 --shape 2x2'; do
        echo "$line" >"$directory/batch"
        refuse "$directory/batch:1: " --procs 2 --batch "$directory/batch"
    done
    echo '# none' >"$directory/batch"
    refuse 'has no test' --procs 2 --batch "$directory/batch"
    head -c 4000 /dev/zero >"$directory/batch"
    refuse 'is not a text' --procs 2 --batch "$directory/batch"
    refuse 'No such file' --procs 2 --batch "$directory/nothing"
    refuse 'lines of the file set what is measured' af --procs 2 --batch "$directory/batch"

    # A stand-in for stepaf-report: what it is asked for, and what is said where it or its library is missing.
    mkdir "$directory/bin"
    cat >"$directory/bin/stepaf-report" <<'END'
#!/bin/sh
echo "$*" >>"$0.log"
[ "$1" = --probe ] && exec test ! -e "$0.lacks"
exec test ! -e "$0.fails"
END
    chmod +x "$directory/bin/stepaf-report"
    setting=PATH=$directory/bin:$PATH
    expect 0 af --procs 2 --size 64 --report "$directory/it.html" $few
    equal "what is asked for" "$(tr '\n' ' ' <"$directory/bin/stepaf-report.log")" \
        "--probe --output $directory/it.html -- $directory/it.json "
    tail -n 1 "$directory/it.json" | grep -qx ']' || fail "the JSON of --report is not there"
    # What is there is only looked at: a pipe that nobody reads is not waited for, and a link stays.
    mkfifo "$directory/pipe"
    ln -s nothing "$directory/link"
    for name in pipe link; do
        expect 0 af --procs 2 --size 64 --report "$directory/$name" --json "$directory/json" $few
    done
    [ -p "$directory/pipe" ] && [ -h "$directory/link" ] || fail "--report has replaced a pipe or a link"
    expect 0 af --procs 2 --size 64 --report "$directory/it" --json "$directory/json" $few
    equal "what is asked for last" "$(tail -n 1 "$directory/bin/stepaf-report.log")" \
        "--output $directory/it -- $directory/json"
    : >"$directory/bin/stepaf-report.fails"
    expect 1 af --procs 2 --size 64 --report "$directory/it.html" $few
    has err "^stepaf_perf: --report: .* exit code 1; what was measured is in $directory/it.json"
    : >"$directory/bin/stepaf-report.lacks"
    refuse '--report requires Python 3 with matplotlib, .*: install python3-matplotlib' af --procs 2 --report "$directory/it.html"
    setting=
    if ! command -v stepaf-report >/dev/null; then
        refuse '--report: stepaf-report is neither beside' af --procs 2 --report "$directory/it.html"
    fi
    refuse 'report excludes --startup' --startup --procs 2 --report "$directory/it.html"
    refuse 'name the same file' af --procs 2 --report "$directory/it" --json "$directory/it"
    refuse "--report '' names no file" af --procs 2 --report ''

    # Two processes without a launcher, and three whose environment says where they meet.
    port=$((20000 + $$ % 10000))
    timeout -k 10 60 "$perf" af --connect "localhost:$port" --size 64 --transport tcp --check $few >"$directory/other" 2>&1 &
    pid=$!
    expect 0 af --listen=$port --size 64 --transport tcp $checked
    wait $pid || fail "--connect: exit code $?"
    verified
    has out '^# ranks +1 attention, 1 FFN, met over tcp'
    grep -q '^# the rank that listens prints' "$directory/other" || fail "--connect has not said where the table is"
    for rank in 1 2; do
        STEPAF_RANK=$rank STEPAF_SIZE=3 STEPAF_MEET=localhost:$port STEPAF_SPLIT=attn=2,ffn=1 \
            timeout -k 10 60 "$perf" floor --size 64 $few >/dev/null 2>&1 &
    done
    STEPAF_RANK=0 STEPAF_SIZE=3 STEPAF_MEET=localhost:$port STEPAF_SPLIT=attn=2,ffn=1 expect 0 floor --size 64 $few
    wait
    has out '^# ranks +2 attention, 1 FFN, met over tcp'
    refuse 'exclude each other' af --procs 2 --listen
    refuse 'STEPAF_MEET=nowhere:0: it takes' af --connect nowhere:0
    refuse 'names no host' af --connect ''

    # Until a signal comes, to the parent of the ranks.
    refuse 'forever excludes --startup' af --procs 2 --forever --json "$directory/json"
    "$perf" af --procs 2 --size 8 --iters 50 --forever --csv >"$directory/out" 2>"$directory/err" &
    pid=$!
    for _ in $(seq 300); do
        [ "$(grep -Ec '^8,8,[0-9]+,.*,[0-9.]+$' "$directory/out")" -lt 3 ] || break
        sleep 0.1
    done
    kill -INT $pid
    wait $pid || fail "--forever: exit code $? when it was interrupted"
    [ "$(grep -Ec '^8,8,[0-9]+,.*,[0-9.]+$' "$directory/out")" -ge 3 ] || fail "--forever has not gone on"
    # It ends in the row that it comes in, and what was measured of this is shown: of ten minutes' rows, no second one.
    refuse 'which the test floor does not use' floor --procs 2 --forever
    refuse 'requires --iters' af --procs 2 --forever --max-time 0
    "$perf" af --procs 2 --size 1M,2M --max-time 600 --rounds 10000 --forever --csv >"$directory/out" 2>"$directory/err" &
    pid=$!
    await_ranks
    sleep 2
    kill -INT $pid
    ended_by $pid || fail "--forever: has not ended in its row"
    wait $pid || fail "--forever: exit code $? when it was interrupted in a row"
    equal "the rows of what was interrupted" "$(sed -n 's/^\([0-9][0-9]*\),.*/\1/p' "$directory/out")" 1048576
    # In a block that has no end, a second signal has its usual effect.
    "$perf" af --procs 2 --size 1M --max-time 0 --iters 1000000 --rounds 1 --forever >"$directory/out" 2>"$directory/err" &
    pid=$!
    await_ranks
    kill -INT $pid
    ended_by $pid TERM || fail "--forever: a second signal has no effect"
    wait $pid
    equal "the exit code of what was ended" $? 143

    # All samples, and the table's median is theirs.
    expect 0 af --procs 3 --split attn=2,ffn=1 --size 64,256 --csv --samples "$directory/samples" $few
    for bytes in 64 256; do
        median=$(sed -n "s/^[0-9]*,$bytes,$bytes,ours,[01],[0-9]*,//p" "$directory/samples" | sort -n |
            awk '{ us[NR] = $1 } END { if (NR == 120) printf "%.3f\n", us[60] }')
        has out "^$bytes,$bytes,60,[^,]*,${median:-is not there},"
    done
    has samples '^1,256,256,floor,0,59,[0-9.]+$'
    expect 2 --procs 2 --startup --samples "$directory/samples"
    # A file that cannot be written is told of before anything is measured, and two are not one.
    for option in --samples --report; do
        refuse "$option: $directory/none/it: No such file" af --procs 2 $option "$directory/none/it"
        grep -q '^# ' "$directory/out" && fail "$option: a run has begun"
    done
    refuse 'json and --trace name the same file' af --procs 2 --json "$directory/it" --trace "$directory/it"
    refuse 'json and --samples name the same file' af --procs 2 --json "$directory/it" --samples "$directory/it"
    refuse 'samples and --trace name the same file' af --procs 2 --samples "$directory/it" --trace "$directory/it"
    refuse 'json and --samples name the same file' af --procs 2 --report "$directory/it" --samples "$directory/it.json"
    refuse 'name the same file' af --procs 2 --json "$directory/it" --trace "$directory/./it"
    refuse 'mem cuda excludes' af --procs 2 --mem cuda --trace "$directory/it"
    expect 0 floor --procs 2 --size 64 --json "$directory/json" $few
    has json '"transport": "memcpy"'
    expect 0 af --procs 2 --size 64 --csv $few
    has out '^64,64,60,.*,memcpy,shm'

    # Over TCP the floor is sockets: every pattern, tensors larger than any socket's buffer, and all
    # the bytes that it writes into the same tensors as the library does no harm to.
    for test in $tcp_tests; do
        expect 0 $test --procs 3 --split attn=2,ffn=1 --transport tcp --size 1,5000 -m 2 -d 2 \
            $checked
        verified
        has json '"transport": "tcp;'
        has json '"name": "raw tcp ping-pong"'
        has json '"wait": "(spin|block)(-reno)?"'
        has json '"gb_ratio": [0-9]'
        grep -Eq '"p50_us": (0|0\.0*|-.*),' "$directory/json" && fail "a median is nothing"
    done
    expect 0 af --procs 3 --split attn=1,ffn=2 --transport tcp --scatter --shape 7x16,1x16 \
        --push-dtype fp8 --route-topk 4 --recv each $checked
    verified
    expect 0 af --procs 2 --transport tcp --size 9M -d 2 --iters 4 --warmup 1 --rounds 1 --check \
        --json "$directory/json"
    verified
    expect 0 floor --procs 2 --transport tcp --size 64 --json "$directory/json" $few
    has json '"transport": "sockets"'
    has json '"wait": "(spin|block)(-reno)?"'
    setting=STEPAF_TRANSPORTS=tcp
    expect 0 af --procs 2 --size 64 --transport shm --csv $few
    has out 'shm, by --transport, which overrides STEPAF_TRANSPORTS=tcp'
    has out ',memcpy,shm'
    expect 0 af --procs 2 --size 64 --csv $few
    has out 'tcp, by STEPAF_TRANSPORTS$'
    has out ',tcp;(spin|block)(-reno)?,tcp;'
    setting=STEPAF_NET_IF=127.0.0.0/8
    expect 0 floor --procs 2 --transport tcp --size 64 --csv $few
    has out ',tcp;(spin|block)(-reno)?,sockets'
    # Over libfabric it is plain writes by the provider of the links.
    if STEPAF_OFI_PROVIDER="tcp;ofi_rxm" STEPAF_TRANSPORTS=ofi "$top_builddir/stepaf_info" -t | grep -q '^ofi  *can be used'; then
        setting="STEPAF_OFI_PROVIDER=tcp;ofi_rxm"
        expect 0 push_then_pull --procs 2 --transport ofi --size 1,5000 -m 2 -d 2 $checked
        verified
        has json '"transport": "ofi;tcp;ofi_rxm"'
        has json '"name": "raw libfabric ping-pong"'
    fi
    # Over UCX it is plain active messages.
    if STEPAF_TRANSPORTS=ucx "$top_builddir/stepaf_info" -t | grep -q '^ucx  *can be used'; then
        setting="UCX_TLS=$TEST_UCX_SHM"
        expect 0 push_then_pull --procs 2 --transport ucx --size 1,50000 -m 2 -d 2 $checked
        verified
        has json "\"transport\": \"ucx;${TEST_UCX_SHM%,self}\""
        has json '"name": "raw UCX ping-pong"'
    fi
    setting=
    expect 0 af --procs 2 --size 64 --trace-cost --iters 200
    has out '^ +64 +64 +200 '
    expect 0 af --procs 4 --split attn=1,ffn=3 --size 64 --answers 2 --iters 200 --depth 2
    has out '^ +64 +64 +200 +3 of 3 +none '
    has out '^ +64 +64 +200 +2 of 3 +one '
    # Operations are as many as were asked for, or as time allows: a million of 4 MiB take minutes.
    expect 0 af --procs 3 --split attn=1,ffn=2 --size 64 --answers 1 --iters 1 --warmup 0
    has out '^ +64 +64 +1 +1 of 2 +one '
    expect 0 af --procs 3 --split attn=1,ffn=2 --size 4M --answers 1 --iters 1000000
    has out '^ +4194304 +4194304 +[0-9]{1,5} +2 of 2 +none '
    expect 1 af --procs 3 --split attn=1,ffn=2 --size 64 --answers 2 --iters 200
    has err 'the last is to be stopped'
    expect 0 --startup --procs 4 --keys 33 --json "$directory/json"
    has json '"init_exchanges": 1,'
    has json '"commit_exchanges": 2'
    has json '"sockets": 1,'
    has json '"per_peer_bytes": [1-9]'

    # The formulas of docs/scale.md: 17 keys that are pushed and 16 that are pulled, one region.
    expect 0 --startup --procs 2 --keys 33 --transport shm --json "$directory/json"
    one=$((20 + 4 + (4 + 3 + 4 + 40) + 12 + 33 * 44 + 4 + 12 + 16 + 12 + 16 + 28))
    equal commit_bytes "$(field commit_bytes)" $((one + 17 * 32))
    equal commit_all_bytes "$(field commit_all_bytes)" $((2 * one + 17 * 32))
    # Only FFN ranks give addresses: what is left of both ranks' bytes is the attention rank's.
    expect 0 --startup --procs 2 --keys 33 --transport shm,tcp --json "$directory/json"
    equal attention_bytes $(($(field commit_all_bytes) - $(field commit_bytes))) $((one + 11 + 40 + 4))
    for few_keys in 2 400; do
        expect 0 --startup --procs 5 --split attn=2,ffn=3 --keys $few_keys --transport tcp \
            --json "$directory/json"
        equal sockets "$(field sockets)" 4
        equal init_exchanges "$(field init_exchanges)" 1
        # More where the machine is so busy that links take long.
        [ "$(field commit_exchanges)" -ge 3 ] || fail "commit_exchanges is $(field commit_exchanges)"
    done
    expect 0 --startup --procs 2 --keys 4096 --json "$directory/json"
    has out '^growth: step '
    has out '^deregister regions .* [0-9]+\.[0-9][0-9]$'
    has out '^withdraw .* [0-9]+\.[0-9][0-9]$'
    has json '"few_commit_again_us": [1-9]'

    expect 1 af --procs 2 --size 64 --corrupt 10 $checked
    has err 'bytes were wrong'
    has json '"wrong_bytes": [1-9]'
}

# A rank that is lost takes no row with it that was measured. Each row takes a second and more.
rm -f "$directory/json"
timeout -k 10 120 "$perf" af --procs 2 --size 16k,32k,64k,128k,256k --iters 5000000 \
    --json "$directory/json" --trace "$directory/trace" >"$directory/out" 2>"$directory/err" &
perf_pid=$!
while kill -0 $perf_pid 2>/dev/null && ! grep -q '^ *16384 ' "$directory/out"; do
    sleep 0.1
done
kill -9 "$(awk '$4 == "ffn" { print $6 }' "$directory/out")"
wait $perf_pid
is=$?
[ "$is" -eq 1 ] || fail "a lost rank: exit code $is instead of 1"
equal "the first row's size" "$(field push_bytes)" 16384
[ "$(tail -n 1 "$directory/json")" = ']' ] || fail "the file is not whole"
has trace '"name":"operation"'
[ "$(tail -n 1 "$directory/trace")" = ']}' ] || fail "the trace is not whole"
! command -v python3 >/dev/null || python3 -m json.tool "$directory/trace" >/dev/null 2>"$directory/err" || fail "the trace is no JSON"

# A rank that falls silent ends the run too, also where a wait has no deadline of its own: it is stopped
# once the other one has had time to be in a row that lasts a minute.
for test in $silent_tests; do
    timeout -k 10 120 "$perf" $test --procs 2 --size 64k --max-time 60 --rounds 600 \
        --iters 5000000 --timeout 1 >"$directory/out" 2>"$directory/err" &
    perf_pid=$!
    while kill -0 $perf_pid 2>/dev/null && ! grep -q ' push ' "$directory/out"; do
        sleep 0.1
    done
    sleep 1
    kill -STOP "$(awk '$4 == "ffn" { print $6 }' "$directory/out")"
    wait $perf_pid
    is=$?
    [ "$is" -eq 1 ] || fail "a silent rank: exit code $is instead of 1"
    has err '^stepaf_perf: rank 0 failed: .*( in time|has not ended within)'
done

# So it does by the setting; that a wait has failed is said before the others are given up.
if [ -n "$silent_tests" ]; then
    STEPAF_TIMEOUT_US=2000000 timeout -k 10 50 "$perf" af --procs 2 --size 64k --max-time 60 --rounds 600 --no-floor \
        --iters 5000000 >"$directory/out" 2>"$directory/err" &
    perf_pid=$!
    while kill -0 $perf_pid 2>/dev/null && ! grep -q ' push ' "$directory/out"; do
        sleep 0.1
    done
    sleep 1
    silent_pid=$(awk '$4 == "ffn" { print $6 }' "$directory/out")
    kill -STOP "$silent_pid"
    tries=0
    while [ $tries -lt 400 ] && ! grep -q failed "$directory/err"; do
        sleep 0.1
        tries=$((tries + 1))
    done
    has err '^stepaf_perf: rank 0 failed: stepaf_wait: .* in time'
    kill -0 "$silent_pid" 2>/dev/null || fail "the failure was said only when the run ended"
    wait $perf_pid
    is=$?
    [ "$is" -eq 1 ] || fail "a silent rank, by the setting: exit code $is instead of 1"
    equal "sentences" "$(wc -l <"$directory/err")" 1
fi

# What cannot be written is no success.
if [ -w /dev/full ]; then
    # refuse_full ARGUMENT...: exit code 1 where standard output is a full disk.
    refuse_full()
    {
        "$perf" "$@" >/dev/full 2>"$directory/err"
        is=$?
        [ "$is" -eq 1 ] || fail "stepaf_perf $* on a full disk: exit code $is instead of 1"
        has err '^stepaf_perf: standard output: '
    }
    refuse_full af --procs 2 --size 64 --iters 10
    refuse_full af --procs 2 --size 64 --iters 10 --csv
    refuse_full af --procs 2 --size 64 --iters 200 --trace-cost
    refuse_full --startup --procs 2
    expect 1 af --procs 2 --size 64 --iters 10 --json /dev/full
    expect 1 af --procs 2 --size 64 --iters 10 --trace /dev/full
fi

refuse "no launcher" af
refuse "no test" --procs 2
refuse "'fast' is not a test" fast --procs 2
refuse "a run has one test" af push --procs 2
refuse "unrecognized option" af --procs 2 --fast
refuse "--procs '1'" af --procs 1
refuse "list of sizes" af --procs 2 --size 8x
refuse "list of sizes" af --procs 2 --size 0
refuse "list of sizes" af --procs 2 --size 8M:8
refuse "give lists of equal length" af --procs 2 --push-size 1,2 --pull-size 1,2,3
refuse "list of shapes" af --procs 2 --shape 8x
refuse "4294967295 bytes" af --procs 2 --shape 65536x65536
refuse "exclude each other" af --procs 2 --shape 8x8 --size 8
refuse "require --shape" af --procs 2 --route-topk 8
refuse "not an element type" af --procs 2 --shape 8x8 --push-dtype bf8
refuse "--microbatches '0'" af --procs 2 -m 0
refuse "--depth '33'" af --procs 2 -d 33
refuse "1024 operations" af --procs 2 -m 256 -d 32
refuse "neither 'any' nor 'each'" af --procs 2 --recv some
refuse "requires a test whose operations push" pull --procs 2 --scatter
refuse "requires MPI" af --procs 2 --baseline mpi
refuse "not 'mpi'" af --procs 2 --baseline tcp
refuse "neither 'host' nor 'cuda'" af --procs 2 --mem gpu
refuse "require --mem cuda" af --procs 2 --graph
refuse "require --mem cuda" af --procs 2 --baseline nccl
refuse "requires --mem cuda, and excludes" af --procs 2 --mem cuda --stream=4 --graph=4
refuse "--graph '0'" af --procs 2 --mem cuda --graph=0
refuse "--mem cuda excludes" af --procs 2 --mem cuda --scatter
refuse "has no test" floor --procs 2 --mem cuda
refuse "at most 16 microbatches" af --procs 2 --mem cuda -m 17
refuse "cannot be checked" af --procs 2 --mem cuda --recv any --check
# Where there is no GPU, or no CUDA in this build, it says so.
if ! ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
    expect 1 af --procs 2 --mem cuda --size 8 --iters 1
    has err 'cudaGetDeviceCount|no GPU|has no CUDA'
fi
refuse "names no transport" af --procs 2 --transport ''
refuse '"pigeon" is not a transport' af --procs 2 --transport pigeon
refuse "--keys requires --startup" af --procs 2 --keys 5
# What --startup does not look at.
for option in '--size 8' '--shape 8x8' '--iters 5' '-m 2' '--no-floor' '--mem host'; do
    # shellcheck disable=SC2086
    refuse 'measures no operations, and excludes --' --startup --procs 2 $option
done
refuse 'excludes a test' af --startup --procs 2
refuse "no table for --csv" --startup --procs 2 --csv
refuse "no table for --csv" af --procs 2 --trace-cost --csv
refuse "is for the test af" af --procs 3 --answers 1 --check
refuse "is for the test af" bw --procs 3 --answers 1
refuse "requires --check" af --procs 2 --corrupt 1
refuse "does not use the library" floor --procs 2 --check
refuse "--json '' names no file" af --procs 2 --json ''
refuse "--trace '' names no file" af --procs 2 --trace ''
refuse "No such file" af --procs 2 --json "$directory/none/json"
refuse "No such file" af --procs 2 --trace "$directory/none/trace"
refuse "attn=1,ffn=1" af --procs 3 --split attn=1,ffn=1
setting=STEPAF_DEPTH=99
refuse "STEPAF_DEPTH=99" af --procs 2
setting=STEPAF_MESH=lane
refuse "measures a full mesh" af --procs 4 --split attn=2,ffn=2
setting=PMIX_RANK=0
refuse "leave them out" af --procs 2
exit $failed
