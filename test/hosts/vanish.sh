#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A host vanishes without a word while ranks have connections beside the data plane to it, which the kernel takes 20
# seconds to call silent: a commit goes on without its rank soon, since others have lost that one by then.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}" "${PYTHON:=python3}"
export top_srcdir top_builddir
. "$top_srcdir/test/hosts/hosts.sh"
[ -z "${SANITIZERS:-}" ] || hosts_skip "the Python package is not for sanitizer builds"
PYTHONPATH=$(cd "$top_builddir" && pwd)/python/site
STEPAF_LIBRARY=$(cd "$top_builddir" && pwd)/.libs
PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH STEPAF_LIBRARY PYTHONDONTWRITEBYTECODE
"$PYTHON" -c 'import stepaf' 2>/dev/null || hosts_skip "no Python package was built"
hosts_enter "$@"
hosts_up 4 || exit 99
for name in RANK WORLD_SIZE MASTER_ADDR MASTER_PORT STEPAF_SPLIT; do
    unset $name
done
export STEPAF_MEET=h1:27000 STEPAF_SIZE=5 STEPAF_SECRET=known-to-all STEPAF_TRANSPORTS=tcp
export STEPAF_TCP_PEER_TIMEOUT_US=1000000

# Rank 4 dies, so that all others agree without it, and are connected then. Of rank 1, which vanishes, only FFN ranks
# hear by the data plane, and not rank 0, which leads.
cat >/run/rank.py <<'END'
import os, pathlib, time, stepaf
rank, places = int(os.environ["STEPAF_RANK"]), pathlib.Path("/run")

def commit(ctx, key):
    ctx.push_key(key, 64)
    began = time.monotonic()
    ctx.commit(lost="leave")
    return time.monotonic() - began

ctx = stepaf.Context(role="ffn" if rank in (2, 3) else "attention")
ctx.push_key(1, 64)
ctx.commit()
if rank == 4:
    os._exit(0)
while ctx.members()[4] == stepaf.MemberState.IN:
    ctx.progress()
    time.sleep(0.01)
commit(ctx, 2)
(places / f"up{rank}").touch()
while rank == 1 or not (places / "cut").exists():
    time.sleep(0.01)
seconds = commit(ctx, 3)
(places / f"done{rank}").write_text(f"{ctx.epoch} {seconds:.1f}\n")
os._exit(0)
END

# await FILE...: for half a minute at most.
await()
{
    left=300
    for file; do
        while [ ! -e "$file" ] && [ $left -gt 0 ]; do
            left=$((left - 1))
            sleep 0.1
        done
    done
}
rank=0
pids=
for host in h1 h4 h2 h3 h1; do
    STEPAF_RANK=$rank hosts_run $host "$PYTHON" /run/rank.py &
    pids="$pids $!"
    rank=$((rank + 1))
done
await /run/up0 /run/up1 /run/up2 /run/up3
nsenter --net=/proc/1/ns/net bridge link set dev port4 state disabled || exit 99
touch /run/cut
await /run/done0 /run/done2 /run/done3
# shellcheck disable=SC2086
kill -9 $pids 2>/dev/null
wait
code=0
for rank in 0 2 3; do
    read -r epoch seconds </run/done$rank || { echo "rank $rank has not gone on"; exit 1; }
    echo "rank $rank: epoch $epoch after $seconds s"
    [ "$epoch" -eq 3 ] && [ "${seconds%.*}" -lt 10 ] || code=1
done
exit $code
