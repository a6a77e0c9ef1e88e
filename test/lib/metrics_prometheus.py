# SPDX-License-Identifier: Apache-2.0
"""What a Prometheus server has scraped, compared with what has happened: see metrics_prometheus.sh."""
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request

source, events_path, server, exporter, promtool, seconds = sys.argv[1:]
seconds = float(seconds)
RANKS = 8
SLACK_S = 60  # for the job to end
SEEN_S = 12   # a scrape every five seconds, and a busy machine


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def ask(path, **words):
    answer = json.loads(get(f"{server}/api/v1/{path}?{urllib.parse.urlencode(words)}"))
    assert answer["status"] == "success", answer
    return answer["data"]["result"]


def value(query, at):
    found = ask("query", query=query, time=at)
    return [float(sample["value"][1]) for sample in found]


def read_events():
    with open(events_path, encoding="utf-8") as file:
        return [(float(at), what, int(rank[0]) if rank else -1)
                for at, what, *rank in map(str.split, file.read().splitlines())]


def check_page(n):
    """What promtool says of the page as it is now."""
    text = get(exporter + "/metrics")
    result = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and not result.stdout and not result.stderr, result
    if n == 0:
        print(f"a page: {len(text)} bytes, {sum(not line.startswith('#') for line in text.splitlines())} samples")


def await_end():
    until = time.time() + seconds + SLACK_S
    n = 0
    while not any(what == "over" for _, what, _ in read_events()):
        assert time.time() < until, "the job does not end"
        time.sleep(5)
        check_page(n)
        n += 1
    print(f"promtool check metrics: {n} pages, nothing found")


def check_scrapes(began, ended):
    up = ask("query", query=f"up[{int(ended - began)}s]", time=ended)[0]["values"]
    assert len(up) >= 0.18 * (ended - began - 10), f"{len(up)} scrapes in {ended - began:.0f} s"
    took = [float(v) for _, v in
            ask("query", query=f"scrape_duration_seconds[{int(ended - began)}s]", time=ended)[0]["values"]]
    took.sort()
    failed = [round(at - began) for at, v in up if v != "1"]
    assert not failed, f"scrapes after {failed} s have failed; the longest took {took[-1]:.2f} s"
    print(f"{len(up)} scrapes of {RANKS} ranks in {ended - began:.0f} s, none failed: median "
          f"{took[len(took) // 2] * 1e3:.0f} ms, longest {took[-1] * 1e3:.0f} ms")


def check_lives(events):
    """A rank is up but while it is gone, and its peers' links likewise."""
    lives = {rank: 1 for rank in range(RANKS)}
    n = 0
    for (gone, what, rank), (back, then, same) in zip(events, events[1:]):
        if what != "gone":
            continue
        assert (then, same) == ("back", rank)
        label = f'{{stepaf_job="eight",rank="{rank}"}}'
        before, within, after = gone - 0.5, gone + SEEN_S, back + SEEN_S
        assert value(f"stepaf_rank_up{label}", before) == [1] and value(f"stepaf_rank_life{label}", before) == [lives[rank]]
        assert value(f"stepaf_rank_up{label}", within) == [0], (rank, "is not seen to be gone")
        assert value('count(stepaf_rank_up{stepaf_job="eight"} == 1)', within) == [RANKS - 1]
        links = value(f'stepaf_link_up{{stepaf_job="eight",peer="{rank}"}}', within)
        assert links == [0] * (RANKS // 2), (rank, links)
        lives[rank] += 1
        assert value(f"stepaf_rank_up{label}", after) == [1], (rank, "is not seen to be back")
        assert value(f"stepaf_rank_life{label}", after) == [lives[rank]]
        assert value(f'stepaf_link_up{{stepaf_job="eight",peer="{rank}"}}', after) == [1] * (RANKS // 2)
        assert value('count(stepaf_rank_up{stepaf_job="eight"} == 1)', after) == [RANKS]
        n += 1
    assert n
    print(f"{n} ranks were killed and have returned: each was seen gone within {SEEN_S} s, and back as the next life")


def check_rails(at):
    """Two connections share what each link has sent, and none is given up; each link tells what was done again."""
    n_links = RANKS * RANKS // 2
    job = 'stepaf_job="eight"'
    link, rail, second = (f"rate(stepaf_{name}_sent_bytes_total{{{labels}}}[30s])" for name, labels in
                          (("link", job), ("rail", job), ("rail", job + ', rail="1"')))
    assert value(f"stepaf_rail_up{{{job}}}", at) == [1] * 2 * n_links
    shares = value(f"sum by (rank, peer) ({rail}) / on (rank, peer) {link}", at)
    assert len(shares) == n_links and all(0.999 < share < 1.001 for share in shares), shares
    of_second = value(f"sum({second}) / sum({link})", at)[0]
    assert 0.4 < of_second < 0.6, of_second
    again = value(f"stepaf_link_retries_total{{{job}}}", at)
    assert len(again) == 2 * n_links
    rate = value(f"sum({rail})", at)[0]
    print(f"{2 * n_links} rails of {n_links} links: {rate / 1e6:.0f} MB/s, {of_second:.0%} of it by each second one; "
          f"{sum(again):.0f} retries")


def check_dashboard(at):
    with open(os.path.join(source, "tools/stepaf-grafana.json"), encoding="utf-8") as file:
        dashboard = json.load(file)
    empty = []
    n = 0
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "60s")
            query = re.sub(r"\$(job|instance)\b", ".*", query)
            n += 1
            if not value(query, at):
                empty.append(query)
    assert not empty, empty
    print(f"{n} expressions of the dashboard: each has an answer")


def main():
    await_end()
    events = read_events()
    began, ended = events[0][0], events[-1][0]
    check_scrapes(began, ended)
    check_lives(events)
    check_rails(ended - 1)
    check_dashboard(ended - 1)
    operations = 'sum(rate(stepaf_operations_completed_total{stepaf_job="eight",rank="0"}[20s]))'
    rates = [float(v) for series in ask("query_range", query=operations, start=began + 10, end=ended - 1, step=1)
             for _, v in series["values"]]
    assert rates and sum(rate > 0 for rate in rates) >= 0.8 * len(rates)


main()
