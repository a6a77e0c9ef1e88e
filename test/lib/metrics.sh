#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stepaf-top and stepaf-exporter on a job that runs over two connections of TCP between any two ranks: what they show, on terminals and piped, to HTTP, a socket and a file;
# what they make of files that are no ranks, of a rank that is killed and one that takes its place; promtool finds
# nothing; the dashboard and docs/metrics.md name what there is.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
skip() { echo "skipped: $1"; exit 77; }
perf=$top_builddir/stepaf_perf
[ -x "$perf" ] || skip "stepaf_perf is not built"
# The Python that has what is wanted, else any.
finds() { "$1" -c 'import prometheus_client, pyte' 2>/dev/null; }
python=$(command -v python3) || skip "there is no python3"
finds "$python" || ! finds /usr/bin/python3 || python=/usr/bin/python3
directory=$(mktemp -d) || exit 99
job=
trap '[ -z "$job" ] || kill "$job" 2>/dev/null; rm -rf "$directory"' EXIT
unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_RANK PMI_SIZE MPI_LOCALRANKID STEPAF_SPLIT STEPAF_ROLE STEPAF_TRANSPORTS \
    STEPAF_METRICS STEPAF_METRICS_JOB
PROMTOOL=${PROMTOOL:-$(command -v promtool)}
export PROMTOOL PYTHONDONTWRITEBYTECODE=1

# It sleeps rather than spins: there is no hurry.
STEPAF_VERDICT=on STEPAF_BACKOFF=sleep STEPAF_SPIN_US=0 STEPAF_SLEEP_AFTER_US=0 STEPAF_TCP_CONNECTIONS=2 \
    STEPAF_TCP_STRIPE_BYTES=65536 timeout -k 10 250 "$perf" af --procs 4 --split attn=2,ffn=2 --size 64K --no-floor \
    --iters 100000000 --max-time 200 --transport tcp >"$directory/out" 2>&1 &
job=$!
# Its table of ranks has their processes.
pids() { awk '$1 == "#" && $4 ~ /^(attention|ffn)$/ { print $6 }' "$directory/out"; }
tries=0
while [ "$(pids | wc -l)" -lt 4 ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] && kill -0 "$job" 2>/dev/null || { cat "$directory/out"; echo "FAIL: no job"; exit 1; }
    sleep 0.1
done
# shellcheck disable=SC2046
"$python" "$top_srcdir/test/lib/metrics_check.py" "$top_srcdir" "$directory" $(pids) || { echo "FAIL"; exit 1; }
lacks=$(cat "$directory/lacks")
[ -z "$lacks" ] || skip "there is no $lacks; the rest was tried"
