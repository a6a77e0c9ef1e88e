#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# TCP over a line with delay: delay.sh [-b BUILD]... [-d LIST] [-c LIST] [-s SIZES] [-r ROUNDS] [-t S] [-i N] [-g NAME] [-n] [-l]
#
# One attention and one FFN rank, each in a network namespace of its own, with a line between them that holds
# each packet back (delay/line.c; no netem is needed). Prints Markdown: how many bytes a second go one way with
# 16 operations in flight, and how long one takes there and back, beside plain sockets with the same bytes in
# the same run: the best of four loops, over one connection. It takes the right to make namespaces.
#
# Behind a ratio to another build is what it comes to: lower (shorter) or higher (longer), if the median of the ratios
# within a round is not 1 with 99 % confidence, by the rule of stepaf-report for rounds; same, if it may be; ? where
# there are fewer than 8 rounds. Of two builds that do not differ one row in 128 is called lower or higher with 8 rounds.
#
#   -b  a build directory, by default the current one. Builds that are named take turns; plain sockets are the first
#       one's
#   -d  milliseconds each way, by default "0 1 5"
#   -c  numbers of connections, by default "1 4"
#   -s  as stepaf_perf's --size, by default 256K:16M
#   -r  rounds, each with lines and ranks of its own, by default 1; figures are their medians
#   -t  seconds for each row and contender, by default 1
#   -i  operations of each row and contender at most, by default 10000
#   -g  congestion control, by default the system's
#   -n  without plain sockets, between which ours are idle: for a comparison of builds, where only the first has them
#       otherwise
#   -l  also say on standard error what the lines say of themselves, and the times of each round
#
# DELAY_WRAP is a command that starts each rank, such as one that gives it a core.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top_srcdir=$(cd "$here/.." && pwd)
builds=() delays="0 1 5" connections="1 4" sizes=256K:16M rounds=1 seconds=1 operations=10000 control= plain=1 aloud=
asked=("$@")
while getopts b:d:c:s:r:t:i:g:nl option; do
    case $option in
    b) builds+=("$OPTARG") ;;
    d) delays=$OPTARG ;;
    c) connections=$OPTARG ;;
    s) sizes=$OPTARG ;;
    r) rounds=$OPTARG ;;
    t) seconds=$OPTARG ;;
    i) operations=$OPTARG ;;
    g) control=$OPTARG ;;
    n) plain= ;;
    l) aloud=1 ;;
    *) sed -n '3,29s/^#\( \|$\)//p' "$0" >&2; exit 2 ;;
    esac
done
[ ${#builds[@]} -gt 0 ] || builds=(.)
for i in "${!builds[@]}"; do
    [ -x "${builds[i]}/stepaf_perf" ] || { echo "${builds[i]} has no stepaf_perf" >&2; exit 2; }
    builds[i]=$(cd "${builds[i]}" && pwd)
done
# Older trees have no line.
line=${builds[0]}/bench/delay/line
[ -x "$line" ] || { echo "${builds[0]} has no bench/delay/line: make bench/delay/line" >&2; exit 2; }
# shellcheck source=SCRIPTDIR/../test/hosts/hosts.sh
. "$top_srcdir/test/hosts/hosts.sh"
[ -c /dev/net/tun ] || hosts_skip "no /dev/net/tun"
hosts_enter "${asked[@]}"
hosts_need_mpirun
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self

# line_up MS: instead of what hosts_up has put between the hosts.
line_up()
{
    local host
    hosts_up 2 || return
    for host in h1 h2; do
        ip -n "$host" link del eth0 || return
    done
    "$line" "$(awk "BEGIN { print int($1 * 1000) }")" h1 h2 >/run/line.said 2>&1 &
    line_pid=$!
    for _ in $(seq 500); do
        ! ip -n h2 link show eth0 >/dev/null 2>&1 || break
        sleep 0.01
    done
    for host in h1 h2; do
        # shellcheck disable=SC2086
        ip -n "$host" link set eth0 txqueuelen 100000 up &&
            ip -n "$host" address add "$hosts_net4.${host#h}/24" dev eth0 noprefixroute &&
            ip -n "$host" route add "$hosts_net4.0/24" dev eth0 ${control:+congctl "$control"} ||
            { cat /run/line.said; return 1; }
    done
}

# line_down: and what it says.
line_down()
{
    kill "$line_pid" && wait "$line_pid"
    [ -z "$aloud" ] || sed "s/^/$1 ms: /" /run/line.said >&2
    hosts_down
}

# measure BUILD DELAY CONNECTIONS ROUND
measure()
{
    local test name=/run/rows.$1.$2.$3.$4
    export STEPAF_TCP_CONNECTIONS=$3
    for test in bw af; do
        # shellcheck disable=SC2086
        TEST_TIMEOUT_S=600 hosts_mpirun h1:1,h2:1 --bind-to none -n 2 ${DELAY_WRAP:-} "${builds[$1]}/stepaf_perf" "$test" \
            $([ "$1$plain" = 01 ] || echo --no-floor) --split attn=1,ffn=1 --transport tcp --max-time "$seconds" --iters "$operations" --size "$sizes" --json "$name.$test" \
            >/run/said 2>&1 || { cat /run/said; return 1; }
    done
}

for round in $(seq "$rounds"); do
    for delay in $delays; do
        for n in $connections; do
            # Every second round in the other order, so that neither build is always the later one.
            order=("${!builds[@]}")
            [ $((round % 2)) -eq 1 ] || mapfile -t order < <(printf '%s\n' "${order[@]}" | sort -rn)
            for i in "${order[@]}"; do
                line_up "$delay" && measure "$i" "$delay" "$n" "$round" && line_down "$delay" || exit 1
            done
        done
    done
done
python3 - "$rounds" "$delays" "$connections" "${#builds[@]}" "$aloud" "$plain" "$here" <<'END'
import json, statistics, sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[7])
import rounds as rule

rounds, builds = int(sys.argv[1]), int(sys.argv[4])
of = [""] + [f" {i + 1}" for i in range(1, builds)]
plain_too = bool(sys.argv[6])
plain_words = ["plain"] if plain_too else []
ratios = ["ours/plain"] * plain_too + [word for b in of[1:] for word in (f"ours/ours{b}", "is")]
one_way = [f"ours{b}, GB/s" for b in of] + plain_words + ratios
both = [f"there and back{b}, ms" for b in of] + plain_words + ratios
verdicts = []
print("|", " | ".join(["delay, ms", "connections", "bytes"] + one_way + both), "|")
print("|" + "---|" * (3 + len(one_way) + len(both)))


def rows(delay, n, build, test):
    """By size, the rows of all rounds."""
    found = {}
    for r in range(1, rounds + 1):
        with open(f"/run/rows.{build}.{delay}.{n}.{r}.{test}") as file:
            for row in json.load(file):
                found.setdefault(row["push_bytes"], []).append(row)
    return found


def verdict(found, less, more):
    """What the ratios of all rounds come to."""
    word = rule.verdict(found, less, more)
    verdicts.append(word)
    return word


def columns(all_rows, size, value, less, more):
    """Of each build, and of plain sockets; and the medians of the ratios within a round."""
    ours = [[value(row) for row in one[size]] for one in all_rows]
    plain = [[value(row["floor"]) for row in all_rows[0][size]]] if plain_too else []
    median = statistics.median
    found = [[a / b for a, b in zip(ours[0], other)] for other in plain + ours[1:]]
    words = [f"{median(x):.3g}" for x in ours + plain]
    for i, ratios_found in enumerate(found):
        words.append(f"{median(ratios_found):.2f}")
        words += [verdict(ratios_found, less, more)] if i >= len(plain) else []
    return words


def by_round(all_rows, size):
    for b, one in enumerate(all_rows):
        yield " ".join([f"ours{of[b]}"] + [f"{row['p50_us'] / 1e3:.3g}" for row in one[size]]) + ","
    if plain_too:
        yield " ".join(["plain"] + [f"{row['floor']['p50_us'] / 1e3:.3g}" for row in all_rows[0][size]])


for delay in sys.argv[2].split():
    for n in sys.argv[3].split():
        bw, af = ([rows(delay, n, b, test) for b in range(builds)] for test in ("bw", "af"))
        for size in bw[0]:
            words = [delay, n, f"{size:,}"]
            words += columns(bw, size, lambda row: row["gb_per_s"], "lower", "higher")
            words += columns(af, size, lambda row: row["p50_us"] / 1e3, "shorter", "longer")
            print("|", " | ".join(words), "|")
            if sys.argv[5]:
                print(f"{delay} ms, {n}, {size:,}, ms:", *by_round(af, size), file=sys.stderr)
if verdicts:
    print(f"\nOf {len(verdicts)} ratios:", rule.count(verdicts))
END
