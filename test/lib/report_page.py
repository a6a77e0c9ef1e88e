# SPDX-License-Identifier: Apache-2.0
"""For report.sh: stepaf-report in one process. report_page.py STEPAF-REPORT DIRECTORY; leaves DIRECTORY/page.html."""
import contextlib
import copy
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import stat
import sys
import tempfile
import threading
from html.parser import HTMLParser

sys.dont_write_bytecode = True
program, directory = sys.argv[1:]
loader = importlib.machinery.SourceFileLoader("stepaf_report", program)
report = importlib.util.module_from_spec(importlib.util.spec_from_loader("stepaf_report", loader))
loader.exec_module(report)
out = f"{directory}/page.html"
EVIL = "<script>alert('&\"')</script>"


def spread(scale, narrow=False):
    return {"p50_us": 1.0 * scale, "p99_us": 2.5 * scale,
            "rounds_p50_us": [scale * (1 + i / 500) for i in range(20)],
            "rounds_p99_us": [scale * (2 + i / 50) for i in range(20)],
            "bins_per_octave": 16, "histogram": [[0.96 * scale, 7], [1.0 * scale, 20],
                                                [(1.6 if narrow else 2.5) * scale, 2]]}


def row(size, scale=1.0, floor=0.5, name="memcpy"):
    """As of stepaf_perf, of two attention ranks and one FFN rank."""
    return {"test": "af", "transport": "shm;cma", "attn": 2, "ffn": 1, "push_bytes": size,
            "pull_bytes": size, "microbatches": 1, "depth": 1, "iters": 28, "p999_us": 3 * scale,
            "max_us": 4 * scale, "gb_per_s": 1.25 / scale, **spread(scale, size > 1000),
            "floor": {"name": name, "gb_per_s": 3.0, **spread(floor, size > 1000)},
            "baseline": {"name": "mpi", "gb_per_s": 1.0, **spread(2.0 * scale)},
            "peers": [{"attn": a, "ffn": 0, "link": "shm;cma", "ops": 28, "total_us": 1.0 + a,
                       "start_us": 0.1, "queue_us": 0.2, "work_us": 0.3, "way_us": 0.4} for a in (0, 1)],
            "run": {"version": "0.2.0", "date": "2026-01-01T00:00:00Z", "processor": "a processor",
                    "cores": 4, "kernel": "6.1", "started": "forked", "crowded": False,
                    "ranks": [{"host": "h", "role": "ffn", "rank": 0, "cores": "0"}]}}


def save(name, what):
    path = f"{directory}/{name}"
    with open(path, "w", encoding="utf-8") as file:
        file.write(what if isinstance(what, str) else json.dumps(what))
    return path


def run(*words):
    """(exit code, what it says)"""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            code = report.main(list(words))
        except SystemExit as end:
            code = end.code
    return code, said.getvalue()


def refused(pattern, what):
    code, said = run("-o", out, save("bad.json", what))
    assert code == 1 and re.match(f"stepaf-report: .*{pattern}", said) and said.count("\n") == 1, (what, said)
    assert not os.path.exists(out), "a refused file left a report"


def without(name):
    return [{key: value for key, value in row(64).items() if key != name}]


def refusals():
    refused("no JSON", "{")
    refused("no JSON", "[" * 100000)
    refused("no JSON", "\udcff".encode("utf-8", "surrogateescape").decode("latin-1"))
    refused("no array with rows", {"a": 1})
    refused("no array with rows", [])
    refused("row 0 is not an object", [1])
    refused("row 0 has no number push_bytes", [{"test": "af"}])
    refused("row 0 has no number p50_us", without("p50_us"))
    for value in ("NaN", "Infinity", "-1", "1e999", "9" * 400, '"1"', "true", "null"):
        refused("row 0 has no number p50_us", json.dumps([{**row(64), "p50_us": "@"}]).replace('"@"', value))
    refused("row 0 has no number of ranks attn", [{**row(64), "attn": 0}])
    refused("row 0: its floor", [{**row(64), "floor": {}}])
    for value in (0, 1e-300, 0.5, 16.0, 1025, 1e18, True, None, "16"):
        refused("row 0 has a histogram", [{**row(64), "bins_per_octave": value}])
        refused("row 0: its floor", [{**row(64), "floor": {**row(64)["floor"], "bins_per_octave": value}}])
    refused("row 0 has a histogram", without("bins_per_octave"))
    for value in (1, 1024):
        assert report.load(save("good.json", [{**row(64), "bins_per_octave": value}]))
    refused("row 0: its peers", [{**row(64), "peers": row(64)["peers"] * 2}])
    assert run("-o", out, f"{directory}/none.json")[1].endswith("none.json: No such file or directory\n")
    assert run("-o", out)[0] == 2
    good = save("good.json", [row(64)])
    report.page = lambda *_: "x"
    # A run is not overwritten, whatever it is called there and here.
    os.symlink(good, f"{directory}/same.html")
    with open(good, encoding="utf-8") as file:
        measured = file.read()
    for words in ((good, good), (f"{directory}/same.html", good), (good, save("other.json", [row(64)]), "-a", good)):
        code, said = run("-o", *words)
        with open(good, encoding="utf-8") as file:
            assert code == 2 and "would overwrite the run" in said and file.read() == measured, (words, said)
    os.unlink(f"{directory}/same.html")
    code, said = run("-o", f"{directory}/none/page.html", good)
    assert code == 1 and said.count("\n") == 1 and "No such file" in said, said
    loader.exec_module(report)


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, path + (key,))


def put(value, path, what):
    value = copy.deepcopy(value)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = what
    return value


def hostile():
    """Whatever stands at any place: a sentence or a page, in which it is only text."""
    small = row(64)
    for source in (small, small["floor"], small["baseline"]):
        for name in ("rounds_p50_us", "rounds_p99_us", "histogram"):
            source[name] = source[name][:2]
    shown = 0
    for path in places([small, row(65)]):
        if not path or path[0] == 1:
            continue
        for what in (None, EVIL, -1, 0, 1e18, 10 ** 400, float("nan"), True, [], {}, [EVIL], "\ud800\0" + "x" * 999):
            rows = save("bad.json", put([small], path, what))
            try:
                read = report.load(rows)
            except report.Refused:
                continue
            words = report.page(None, [EVIL], [read, read], [read])
            shown += 1
            words.encode("utf-8")
            assert "<script" not in words and "\0" not in words and "xxx" * 300 not in words, path
    assert shown > 100, shown


def verdicts():
    assert report.median_range(list(range(20))) == (3, 16)
    assert report.median_range([5, 1, 2, 3, 4, 6, 7, 8]) == (1, 8)
    assert report.median_range([1] * 7) is None

    def words(before, after):
        sides = report.sides_of(before, after)
        (key, old), = sides[0].items()
        pairs = [(old, sides[1][key])]
        return report.judge(old, sides[1][key], "p50_us", report.drift(pairs, "p50_us"))[0]

    assert words([[row(64)]], [[row(64)]]) == "noise"
    assert words([[row(64)]], [[row(64, 1.02)]]) == "noise"
    assert words([[row(64)]], [[row(64, 1.2)]]) == "slower"
    assert words([[row(64, 1.2)]], [[row(64)]]) == "faster"
    assert words([[row(64)]], [[row(64, 1.2, 0.6)]]) == "the machine's"
    # What the floor has changed at another size is the machine's as well.
    pairs = [([row(8)], [row(8, 1.2)]), ([row(9)], [row(9, 1.2, 0.7)])]
    assert report.judge(*pairs[0], "p50_us", report.drift(pairs, "p50_us"))[0] == "the machine's"
    few = {**row(64), "rounds_p50_us": [1.0] * 7}
    assert words([[few]], [[few]]) == "not known"
    # By runs: all on one side, or not.
    runs = [[row(64, 1 + i / 10)] for i in range(9)]
    assert words(runs[:4], runs[4:8]) == "slower" and words(runs[5:], runs[:4]) == "faster"
    assert words(runs[:5], runs[4:8]) == "noise"


class Check(HTMLParser):
    """That elements are closed, ids unique and found, and nothing is loaded from anywhere."""

    def __init__(self):
        super().__init__()
        self.stack, self.ids, self.used, self.cells, self.svgs = [], [], [], [], 0

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.stack.append(tag)
        self.look(tag, attrs)

    def handle_startendtag(self, tag, attrs):
        self.look(tag, attrs)

    def look(self, tag, attrs):
        assert tag not in ("script", "link", "img", "iframe", "object"), tag
        self.svgs += tag == "svg"
        for name, value in attrs:
            assert name not in ("src", "srcset") and not name.startswith("on"), (tag, name)
            if name.endswith("href"):
                assert value.startswith("#"), value
                self.used.append(value[1:])
            self.ids += [value] if name == "id" else []
            self.used += re.findall(r"url\(#([^)]*)\)", value or "")

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] in ("td", "th"):
            self.cells.append(data)


def whole_page():
    before = save("before.json", [row(64, name=EVIL), row(65536, 8.0, 6.0)])
    after = save("after.json", [row(64, 1.2, name=EVIL), row(65536, 8.01, 6.0)])
    code, said = run("-o", out, after, "--against", before)
    assert code == 0 and said == "", said
    with open(out, encoding="utf-8") as file:
        words = file.read()
    check = Check()
    check.feed(words)
    assert not check.stack and check.svgs == 6, check.svgs
    assert len(set(check.ids)) == len(check.ids) and set(check.used) <= set(check.ids)
    assert EVIL in check.cells and "attention 1" in check.cells and "2.00 \u25b2" in check.cells
    assert [c for c in check.cells if "slower" in c or c == "noise"] == [
        "\u25b2 slower", "noise", "noise", "noise"], check.cells
    assert "default-src 'none'" in words and "#0000" not in words and "$" not in words


def other_users_links(run_file):
    """Not followed where others may write, and so nothing is put where they want it."""
    if os.geteuid() != 0:
        return
    for mode, owner, is_followed in ((0o1777, 0, False), (0o755, 65534, False), (0o755, 0, True)):
        place = tempfile.mkdtemp(dir=directory)
        save("mine", "mine")
        os.symlink("../mine", f"{place}/link")
        os.chown(f"{place}/link", 65534, 65534, follow_symlinks=False)
        os.chown(place, owner, 0)
        os.chmod(place, mode)
        code, said = run("-o", f"{place}/link", run_file)
        with open(f"{directory}/mine", encoding="utf-8") as file:
            assert (file.read() != "mine") == is_followed, (mode, owner)
        assert is_followed or (code == 1 and "another user's link" in said), said


def special_files():
    """What is no regular file stays what it is, and so does a link; all of them get the page."""
    run_file = save("run.json", [row(64)])
    with open(out, encoding="utf-8") as file:
        least = len(file.read()) // 2
    fifo, link, target, device = (f"{directory}/{name}" for name in ("fifo", "link", "target", "device"))
    os.mkfifo(fifo)
    read = []

    def reader():
        with open(fifo, encoding="utf-8") as file:
            read.append(file.read())

    # A daemon: where nobody writes into the pipe it waits for ever.
    thread = threading.Thread(target=reader, daemon=True)
    thread.start()
    assert run("-o", fifo, run_file) == (0, "")
    assert stat.S_ISFIFO(os.lstat(fifo).st_mode), "the pipe is one no more"
    thread.join(60)
    assert len(read) == 1 and len(read[0]) > least, "the pipe's reader"
    for content in ("old", None):
        if content:
            save("target", content)
            os.symlink("target", link)
        else:
            os.unlink(target)
        assert run("-o", link, run_file) == (0, "")
        assert os.path.islink(link) and os.path.getsize(target) > least
    other_users_links(run_file)
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        return
    assert run("-o", device, run_file) == (0, "")
    assert stat.S_ISCHR(os.lstat(device).st_mode), "the device is one no more"
    assert not [name for name in os.listdir(directory) if re.search(r"\.[0-9a-f]{16}$", name)]


def version():
    """As all programs have it."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert run("--version") == (0, "")
    with open(f"{os.path.dirname(program)}/../VERSION", encoding="ascii") as file:
        assert f"version={said.getvalue().removeprefix('stepaf ')}" in file.readlines(), said.getvalue()


refusals()
version()
hostile()
verdicts()
if importlib.util.find_spec("matplotlib"):
    whole_page()
    special_files()
