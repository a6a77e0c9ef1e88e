#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# By hand, not in the suite: metrics_prometheus.sh [SECONDS [PERIOD_S]], in a build directory. A Prometheus server scrapes
# stepaf-exporter every five seconds, for 300 seconds, while 8 ranks run, over two connections of TCP between any two, of
# which one dies every 40 seconds and returns: each scrape succeeds, each death and each return is seen, the two
# connections have sent what their link has, promtool finds nothing, and Prometheus answers what the dashboard asks.
# PROMETHEUS and PROMTOOL, else what is in PATH.
set -u
: "${top_srcdir:=..}" "${top_builddir:=.}"
seconds=${1:-300} period=${2:-40}
skip() { echo "skipped: $1"; exit 77; }
PROMETHEUS=${PROMETHEUS:-$(command -v prometheus)} PROMTOOL=${PROMTOOL:-$(command -v promtool)}
[ -n "$PROMETHEUS" ] && [ -n "$PROMTOOL" ] || skip "there is no Prometheus server, or no promtool"
job=$top_builddir/test/lib/metrics_job
[ -x "$job" ] || skip "$job is not built: make $job"
python=$(command -v python3) || skip "there is no python3"
"$python" -c 'import prometheus_client' 2>/dev/null || python=/usr/bin/python3
"$python" -c 'import prometheus_client' 2>/dev/null || skip "there is no prometheus_client for Python"
directory=$(mktemp -d) || exit 99
pids=
# shellcheck disable=SC2086
trap '[ -z "$pids" ] || kill $pids 2>/dev/null; wait; rm -rf "$directory"' EXIT
fail() { echo "FAIL: $1"; tail -n 20 "$directory"/*.log; exit 1; }
unset STEPAF_SPLIT STEPAF_ROLE STEPAF_METRICS
export PYTHONDONTWRITEBYTECODE=1

"$python" "$top_srcdir/tools/stepaf-exporter" --listen 127.0.0.1:0 >"$directory/address" 2>"$directory/exporter.log" &
pids=$!
free_port() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
port=$(free_port)
tries=0
until [ -s "$directory/address" ]; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || fail "stepaf-exporter does not listen"
    sleep 0.1
done
exporter=$(awk '{ print $NF }' "$directory/address")
cat >"$directory/prometheus.yml" <<END
global: {scrape_interval: 5s, scrape_timeout: 5s}
scrape_configs:
  - job_name: stepaf
    static_configs: [{targets: ["$exporter"]}]
END
"$PROMTOOL" check config "$directory/prometheus.yml" || fail "promtool refuses the configuration"

STEPAF_TRANSPORTS=tcp STEPAF_TCP_CONNECTIONS=2 STEPAF_TCP_STRIPE_BYTES=65536 STEPAF_VERDICT=on STEPAF_SPIN_US=0 STEPAF_SLEEP_AFTER_US=0 STEPAF_METRICS_JOB=eight "$job" 4 4 "$seconds" "$period" >"$directory/events" 2>"$directory/job.log" &
job_pid=$!
pids="$pids $job_pid"
"$PROMETHEUS" --config.file="$directory/prometheus.yml" --storage.tsdb.path="$directory/data" \
    --web.listen-address="127.0.0.1:$port" >"$directory/prometheus.log" 2>&1 &
pids="$pids $!"
"$python" "$top_srcdir/test/lib/metrics_prometheus.py" "$top_srcdir" "$directory/events" "http://127.0.0.1:$port" \
    "http://$exporter" "$PROMTOOL" "$seconds" || fail "what Prometheus has is not what was"
wait "$job_pid" || fail "the job has failed"
grep -E 'level=(warn|error)' "$directory/prometheus.log" && fail "Prometheus complains"
[ ! -s "$directory/exporter.log" ] || fail "stepaf-exporter complains"
"$PROMETHEUS" --version 2>&1 | head -n 1
