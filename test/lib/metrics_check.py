# SPDX-License-Identifier: Apache-2.0
"""stepaf-top and stepaf-exporter, on ranks that this program makes up, and on those of a real job. Arguments: the top
of the source, an empty directory, the process numbers of the job's ranks."""
import contextlib
import ctypes
import errno
import fcntl
import importlib.machinery
import importlib.util
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
import types
import urllib.request

source, directory = sys.argv[1:3]
job_pids = [int(pid) for pid in sys.argv[3:]]
sys.path.insert(0, os.path.join(source, "tools"))
import stepaf_regions as regions  # noqa: E402

TOP, EXPORTER = (os.path.join(source, "tools", name) for name in ("stepaf-top", "stepaf-exporter"))
LIMIT_S = 60
PEER_MORE = regions.AGAIN.size + regions.PEER_RAILS * regions.RAIL.size
RAILS = [(1000, 1, b"mlx5_0:1"), (500, 0, b"mlx5_1:1")]
COUNTED = {name: 100 + i for i, name in enumerate(regions.COUNTERS)}


def tool(*words, **more):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=LIMIT_S, **more)


@contextlib.contextmanager
def running(command, **options):
    """A process that does not outlive a failure, which would wait for its end."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def load(path):
    """A program, as a module."""
    loader = importlib.machinery.SourceFileLoader("program", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("program", loader))
    loader.exec_module(module)
    return module


def load_exporter():
    return load(EXPORTER)


def await_that(what, holds):
    until = time.monotonic() + LIMIT_S
    while not (found := holds()):
        assert time.monotonic() < until, what
        time.sleep(0.05)
    return found


# Ranks that are made up: a process with a file as the library makes it, and nothing else.

def make_file(data, seals=regions.SEALS, size=None):
    fd = os.memfd_create("stepaf:metrics", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    if size:
        os.truncate(fd, size)
    fcntl.fcntl(fd, 1033, seals)  # F_ADD_SEALS
    return fd


def rank_data(pid, world_rank, life=1, job=7, name=b"", sequence=2, peers=2, lost=(), out=(), times=(),
              reason=b"", link=b"shm;cma", **change):
    # Of an older library, one that had verdicts, and one that has rails and counts of them as well.
    head_bytes = (regions.MORE_AT + regions.MORE.size if "late" in change else
                  regions.VERDICT_AT + (regions.VERDICT.size if "verdict" in change else 0))
    counters_at = 576
    peers_at = counters_at + 8 * len(COUNTED) + 8
    # Of an older library, or of one whose peers have rails.
    peer_bytes = regions.PEER.size + ("rails" in change) * PEER_MORE
    times_at = peers_at + peer_bytes * peers
    histogram = 8 * (regions.BUCKETS + 1)
    late_at = times_at + histogram * peers * regions.N_TIMES
    late = change.get("late", [])
    size = late_at + regions.LATE.size * len(late)
    tables = [counters_at, 8, len(COUNTED), 0, peers_at, peer_bytes, peers, 0,
              times_at, histogram, peers * regions.N_TIMES, 0, late_at, regions.LATE.size, len(late), 0]
    for index, value in change.get("tables", {}).items():
        tables[index] = value
    now = regions.now_ns()
    head = regions.HEAD.pack(change.get("magic", regions.MAGIC), change.get("version", 1),
                             change.get("head", head_bytes), change.get("size", size), *tables[:12])
    who = regions.WHO.pack(job, pid, change.get("role", 0), world_rank, change.get("world", 4),
                           world_rank, 0, name, b"node", b"0.2.0")
    written = now + 10**12  # it does not become silent, however slow the machine is
    live = regions.LIVE.pack(sequence, written, 3, 5, peers - len(lost), peers, life, 1, now)
    data = bytearray(size)
    data[:len(head + who + live)] = head + who + live
    if "verdict" in change:
        regions.VERDICT.pack_into(data, regions.VERDICT_AT, *change["verdict"])
    if "late" in change:
        regions.MORE.pack_into(data, regions.MORE_AT, change.get("rail", -1), 0, *tables[12:])
    for i, counts in enumerate(late):
        for word, count in counts.items():
            struct.pack_into("=I", data, late_at + i * regions.LATE.size + 4 * word, count)
    struct.pack_into(f"={len(COUNTED)}Q", data, counters_at, *COUNTED.values())
    for p in range(peers):
        struct_at = peers_at + p * peer_bytes
        regions.PEER.pack_into(data, struct_at, p + 2, p, regions.LOST * (p in lost) | regions.OUT * (p in out), 1, 2,
                               change.get("lives", 1), 1000 + p,
                               2000 + p, 30, 1500, link, b"10.0.0.1", reason if p in lost else b"")
        if "rails" in change:
            rails = change["rails"]
            more_at = struct_at + regions.PEER.size
            regions.AGAIN.pack_into(data, more_at, 10 + p, 20 + p, change.get("n_rails", len(rails)),
                                    change.get("written_us", 0))
            for i, (sent, up, device) in enumerate(rails):
                regions.RAIL.pack_into(data, more_at + regions.AGAIN.size + i * regions.RAIL.size, sent + p, up, device)
        for i, index in enumerate(times):
            struct.pack_into("=QQ", data, times_at + histogram * (p * 2 + i), 5000, 0)
            struct.pack_into("=Q", data, times_at + histogram * (p * 2 + i) + 8 * (1 + index), 10)
    return bytes(data)


class Made:
    """A process with such a file."""

    def __init__(self, *arguments, **more):
        ready, says = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: if a check fails
            make_file(rank_data(os.getpid(), *arguments, **more))
            os.write(says, b".")
            signal.pause()
            os._exit(0)
        assert os.read(ready, 1) == b"."
        os.close(ready)
        os.close(says)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def seen(job):
    return [rank for rank in regions.find_ranks() if rank.job == job]


def try_reader():
    """Whatever is in a file, it is a rank or none, and no other is harmed."""
    pid = os.getpid()
    name = {"name": b"bad"}
    good = rank_data(pid, 1, **name)
    cases = {
        "good": (good, 1), "short": (good[:100], 0), "cut": (good[:-8], 0), "empty": (b"", 0),
        "magic": (rank_data(pid, 1, magic=b"stepaf\n\n", **name), 0),
        "version": (rank_data(pid, 1, version=2, **name), 0),
        "head": (rank_data(pid, 1, head=16, **name), 0),
        "other process": (rank_data(pid + 1, 1, **name), 0),
        "role": (rank_data(pid, 1, role=2, **name), 0),
        "rank": (rank_data(pid, 4, **name), 0), "negative rank": (rank_data(pid, -1, **name), 0),
        "being written": (rank_data(pid, 1, sequence=3, **name), 0),
        "noise": (os.urandom(len(good)), 0),
    }
    with_late = {"verdict": LATE, "late": [{}, {}, {}]}
    cases["with late ones"] = (rank_data(pid, 1, **name, **with_late), 1)
    cases["with rails"] = (rank_data(pid, 1, rails=RAILS, **name), 1)
    cases["more rails than there is room for"] = (rank_data(pid, 1, rails=RAILS, n_rails=1 << 31, **name), 1)
    cases["without verdicts"] = (rank_data(pid, 1, late=[], **name), 1)
    cases["fewer late ones than peers"] = (rank_data(pid, 1, late=[{}], **name), 0)
    for table in (0, 4, 8, 12):
        for word, value in ((0, 0), (0, 1 << 31), (1, 0), (1, 7), (2, 1 << 30), (2, 0xffffffff)):
            cases[f"table {table} word {word} {value}"] = (
                rank_data(pid, 1, tables={table + word: value}, **name, **with_late), 0)

    def look(data, seals=regions.SEALS):
        fd = make_file(data, seals)
        rank = regions.look_at(f"/proc/self/fd/{fd}", pid, "/proc", 0)
        os.close(fd)
        return rank and rank.is_steady
    for case, (data, n) in cases.items():
        assert bool(look(data)) == n, case
    assert not look(good, regions.SEALS & ~2)  # it could be cut while it is read
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(3):
            data[int.from_bytes(os.urandom(2), "big") % 560] = os.urandom(1)[0]
        look(bytes(data))
    # What is shown has no control characters.
    fd = make_file(rank_data(pid, 1, name=b"bad", reason=b"\x1b[2J\xff\xfe gone", lost=(1,), link=b"a" * 32))
    rank, = seen("bad")
    assert rank.peers[1].lost and rank.peers[1].reason.isprintable() and rank.peers[0].link == "a" * 32
    assert rank.counters == COUNTED and (rank.epoch, rank.commits, rank.alive) == (3, 5, 1)
    os.close(fd)
    h = regions.Histogram(0, [0] * regions.BUCKETS)
    assert h.quantile_us(0.5) is None
    h.buckets[9] = 100  # 1024 to 1280 ns
    assert h.quantile_us(0.01) == h.quantile_us(0.5) == h.quantile_us(0.99) == 1.152
    # Whatever a value is, and wherever in the histogram, what is read is off by an eighth at most.
    for bucket in range(1, regions.BUCKETS - 1):
        h = regions.Histogram(0, [2 * (i == bucket) for i in range(regions.BUCKETS)])
        for value in regions.BUCKET_ENDS_NS[bucket - 1], regions.BUCKET_ENDS_NS[bucket] - 1:
            assert all(abs(h.quantile_us(q) * 1e3 - value) <= value / 8 for q in (0.01, 0.5, 0.99, 1)), (bucket, value)
    h.buckets[-1] = 1
    assert h.quantile_us(1) >= 1 << 24


def try_large():
    """A file with holes costs its owner nothing, and who reads it little."""
    pid, size, read = os.getpid(), 1 << 30, [0]
    pread = regions.pread

    def counting(fd, n, at):
        read[0] += n
        return pread(fd, n, at)

    def look(**change):
        read[0] = 0
        fd = make_file(rank_data(pid, 1, size=size, **change), size=size)
        rank = regions.look_at(f"/proc/self/fd/{fd}", pid, "/proc", 0)
        os.close(fd)
        return rank
    regions.pread = counting
    assert look(tables={2: 1024}).counters == COUNTED and read[0] < 8 * 1024, read
    with_late = {"verdict": LATE, "late": [{}, {}, {}]}
    larger = {5: 8 * regions.PEER.size, 9: 8 * 8 * (regions.BUCKETS + 1), 13: 8 * regions.LATE.size}
    assert len(look(tables=larger, **with_late).peers) == 2
    for case, change in {
            "counters": {"tables": {2: 1025}}, "many counters": {"tables": {2: 130_000_000}},
            "peers": {"tables": {6: 100_000, 10: 200_000}, "world": 1 << 20},
            "more peers than ranks": {"tables": {6: 5, 10: 10}},
            "bytes of a peer": {"tables": {5: 1 << 27}}, "bytes of times": {"tables": {9: 1 << 27}},
            "bytes of late ones": {"tables": {13: 1 << 27}, **with_late}}.items():
        assert not look(**change), case
        assert read[0] < 4096, (case, read)
    regions.pread = pread

    def short_of_memory(*_):
        raise MemoryError
    real, regions.read_rank = regions.read_rank, short_of_memory
    assert not look()
    regions.read_rank = real


def try_swap():
    """What a process puts in the place of its file, before or after it is looked at, is not opened: it may be a device."""
    pid, opened = os.getpid(), []
    fifo = os.path.join(directory, "swap")
    os.mkfifo(fifo)
    other = os.open(fifo, os.O_PATH)
    fd = make_file(rank_data(pid, 1, name=b"swap"))
    real = os.open

    def counting(path, flags, *more):
        got = real(path, flags, *more)
        if not flags & os.O_PATH:
            opened.append(os.readlink(f"/proc/self/fd/{got}"))
        if path == f"/proc/self/fd/{fd}":
            os.dup2(other, fd)
        return got
    os.open = counting
    try:
        rank = regions.look_at(f"/proc/self/fd/{fd}", pid, "/proc", 1)
        assert rank and rank.job == "swap" and opened == [regions.LINK], (rank, opened)
        assert not regions.look_at(f"/proc/self/fd/{fd}", pid, "/proc", 1) and opened == [regions.LINK], opened
    finally:
        os.open = real
    os.close(fd)
    os.close(other)
    os.unlink(fifo)


def large_data(world_rank):
    """More than one look reads, with holes: as many peers as there can be."""
    return rank_data(os.getpid(), world_rank, size=1 << 30, name=b"large", world=1 << 20,
                     tables={5: 8 * regions.PEER.size, 6: regions.MOST_PEERS, 9: 8 * 8 * (regions.BUCKETS + 1),
                             10: regions.N_TIMES * regions.MOST_PEERS})


def try_owners(fd):
    """A file of another user's, of whom there are many, is what is left out then."""
    look = regions.Look(most_bytes=100)
    look.take(1, 60)
    look.take(2, 60)
    try:
        look.take(1, 60)
        assert False, "more than the bound"
    except regions.TooMuch:
        assert look.left == {1: 40, 2: 40}
    if os.geteuid() == 0:
        os.fchown(fd, 65534, -1)
        files = [os.memfd_create("stepaf:metrics") for _ in range(100)]
        for file in files:
            os.fchown(file, 65534, -1)
        watch = regions.Watch(0, most_bytes=50 * regions.FILE_BYTES)
        assert [rank for rank, _ in up(watch, "bounds")] == [1, 2] and watch.last.n_large >= 51, vars(watch.last)
        for file in files:
            os.close(file)


def try_bounds():
    """One look reads no more than its bound, of the small files first, and believes those alone whose files it is told to."""
    pid, name = os.getpid(), {"name": b"bounds"}
    small = [make_file(rank_data(pid, rank, **name)) for rank in range(3)]
    watch = regions.Watch(0, most_bytes=regions.MOST_LOOK_BYTES)
    assert up(watch, "bounds") == [(rank, True) for rank in range(3)] and not watch.last.n_large
    large = [make_file(large_data(rank), size=1 << 30) for rank in range(2)]
    assert up(watch, "bounds") == [(rank, True) for rank in range(3)] and not up(watch, "large")
    assert watch.last.n_large == 2 and watch.last.left[os.geteuid()] >= 0, vars(watch.last)
    top = tool(TOP, "--once", "--json", "-i", "0.1")
    assert "bounds" in top.stdout and "large" not in top.stdout and " 2 files were left out" in top.stderr, top
    # What one that is too large now has shown before is shown again: it has not ended.
    watch.most_bytes = (len(regions.find_files("/proc")) + 2) * regions.FILE_BYTES
    assert up(watch, "bounds") == [(rank, True) for rank in range(3)] and watch.last.n_large > 2
    # Other users' files cost nothing where they are not believed, and else what these may.
    watch = regions.Watch(0, most_bytes=regions.FILE_BYTES, owners=(os.geteuid() + 1,))
    assert not up(watch, "bounds") and watch.last.n_foreign >= 5 and not watch.last.n_large and not watch.last.left
    try_owners(small[0])
    for fd in small + large:
        os.close(fd)


def up(watch, job):
    """(world rank, is it there) of each rank, as the next look has it."""
    return [(rank.world_rank, not rank.gone_ns) for rank in watch.look() if rank.job == job]


def end_all(made):
    for rank in made:
        rank.kill()


def try_runs():
    """Runs with one name: of an earlier one nothing is left, of one that goes on all; two at once are both shown."""
    name = {"name": b"runs"}
    watch = regions.Watch(0)
    made = [Made(rank, job=1, **name) for rank in range(3)]
    assert up(watch, "runs") == [(0, True), (1, True), (2, True)]
    # One is lost, all end, and one returns, with the number or with another one: what was missing still is.
    made.pop(0).kill()
    made.append(Made(0, job=1, lost=(0,), reason=b"its connection has ended", **name))
    up(watch, "runs")
    made.pop(1).kill()
    assert up(watch, "runs") == [(0, True), (1, True), (2, False)]
    end_all(made)
    assert up(watch, "runs") == [(2, False)]
    for number in (1, 2):
        back = Made(0, life=2, job=number, **name)
        assert up(watch, "runs") == [(0, True), (2, False)], number
        back.kill()
    # One that was slow to start, of the same run.
    made = [Made(0, job=1, life=2, **name), Made(1, job=1, life=2, **name)]
    assert up(watch, "runs") == [(0, True), (1, True), (2, False)]
    end_all(made)
    up(watch, "runs")
    made = [Made(3, job=1, **name)]
    assert up(watch, "runs") == [(2, False), (3, True)]
    end_all(made)
    # Started anew with fewer ranks.
    made = [Made(rank, job=3, **name) for rank in range(2)]
    assert up(watch, "runs") == [(0, True), (1, True)]
    # Another one beside it does not have what it lacks forgotten.
    made.pop().kill()
    beside = [Made(0, job=4, **name)]
    assert up(watch, "runs") == [(0, True), (0, True), (1, False)]
    views = json.loads(tool(TOP, "--once", "--json", "-i", "0.1", "--job", "runs").stdout)["ranks"]
    assert [view["pid"] for view in views] == [made[0].pid, beside[0].pid], views
    # Within a job, the process that has taken the place.
    beside.append(Made(0, job=4, life=2, **name))
    assert [rank.pid for rank in watch.look() if rank.key == ("runs", 0)] == [made[0].pid, beside[1].pid]
    end_all(made)
    assert up(watch, "runs") == [(0, True), (1, False)]
    end_all(beside)
    # What began beside it is no later run.
    made = [Made(0, job=5, **name), Made(1, job=5, **name)]
    assert up(watch, "runs") == [(0, True), (1, True)]
    beside = [Made(0, job=6, **name)]
    up(watch, "runs")
    end_all(made)
    assert up(watch, "runs") == [(0, True), (1, False)]
    end_all(beside)


def try_ends():
    """Of a job that has ended no rank is gone but those that were missed before; nor is one without which the job goes on."""
    name = {"name": b"ends"}
    for reason, while_living, at_end in ((b"its connection has ended", [(2, False)], [(2, False)]),
                                         (b"it has finalized", [(2, False)], []), (b"", [(2, False)], [])):
        watch = regions.Watch(0)
        made = [Made(0, **name, **({"lost": (0,), "reason": reason} if reason else {})), Made(1, **name), Made(2, role=1, **name)]
        assert up(watch, "ends") == [(0, True), (1, True), (2, True)]
        made.pop().kill()
        assert up(watch, "ends") == [(0, True), (1, True)] + while_living
        end_all(made)
        assert up(watch, "ends") == at_end, reason
    # A commit that others have not completed yet does not count.
    for outs, gone in (((True, True), []), ((True, False), [(2, False)])):
        watch = regions.Watch(0)
        made = [Made(rank, lost=(0,), out=(0,) * is_out, reason=b"it has left", **name) for rank, is_out in enumerate(outs)]
        made.append(Made(2, role=1, **name))
        assert up(watch, "ends") == [(0, True), (1, True), (2, True)]
        made.pop().kill()
        assert up(watch, "ends") == [(0, True), (1, True)] + gone, outs
        end_all(made)
    # Another process has its place, on another node.
    watch = regions.Watch(0)
    made = [Made(0, lives=2, **name), Made(2, role=1, **name)]
    up(watch, "ends")
    made.pop().kill()
    assert up(watch, "ends") == [(0, True)]
    end_all(made)
    texts = ""
    for path in ("src/core/deliver.c", "src/core/members.c"):
        with open(os.path.join(source, path), encoding="utf-8") as file:
            texts += file.read()
    assert all(f'"{reason}"' in texts for reason in regions.ORDERLY), "the library has other reasons"


def try_stopped():
    """A rank whose process stands still while it writes has not ended: what it was before is shown until it has."""
    name = {"name": b"stopped"}
    made = [Made(rank, **name) for rank in range(2)]
    new = Made(2, sequence=3, **name)  # of which nothing is known yet
    watch = regions.Watch(0)
    assert up(watch, "stopped") == [(0, True), (1, True)]
    fd, = [fd for fd in os.listdir(f"/proc/{made[0].pid}/fd") if os.readlink(f"/proc/{made[0].pid}/fd/{fd}") == regions.LINK]
    with open(f"/proc/{made[0].pid}/fd/{fd}", "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), struct.pack("=Q", 3), regions.LIVE_AT)
        os.pwrite(file.fileno(), struct.pack("=Q", 1 << 40), 576)  # half of it is written
        for _ in range(2):
            assert up(watch, "stopped") == [(0, True), (1, True)]
        rank = watch.known["stopped", 0][0]
        assert rank.counters == COUNTED and len(rank.peers) == 2 and rank.life == 1, rank
        os.pwrite(file.fileno(), struct.pack("=Q", 4), regions.LIVE_AT)
        assert up(watch, "stopped") == [(0, True), (1, True)]
        assert watch.known["stopped", 0][0].counters["operations_started"] == 1 << 40
        os.pwrite(file.fileno(), struct.pack("=Q", 5), regions.LIVE_AT)
    made[0].kill()
    assert up(watch, "stopped") == [(0, False), (1, True)]
    # Another process in its place is not taken for it.
    made[0] = Made(0, sequence=3, **name)
    assert up(watch, "stopped") == [(0, False), (1, True)]
    end_all(made + [new])


def names_in(header, pattern):
    with open(os.path.join(source, "include/stepaf", header), encoding="utf-8") as file:
        return tuple(re.findall(pattern, file.read(), re.M))


def check_names():
    names = names_in("counters.h", r"^    _\((\w+),")
    assert names == regions.COUNTERS, "stepaf_regions.py has other counters than counters.h"
    names = names_in("verdict.h", r"^    _\(STEPAF_VERDICT_\w+, \"([^\"]+)\"\)")
    assert names == regions.PHASES, "stepaf_regions.py has other phases than verdict.h"
    with open(os.path.join(source, "VERSION"), encoding="utf-8") as file:
        version = re.search(r"^version=(\S+)$", file.read(), re.M)[1]
    for program in (TOP, EXPORTER):
        assert tool(program, "--version").stdout == f"stepaf {version}\n", program


# stepaf-top.

def check_plain(text):
    for line in text.splitlines():
        assert len(line) <= 80 and line.isascii() and line.isprintable(), line


BACK = (9600000000, 2000, 40, 1, 3400000, 5, 3) + (0, 5, 0, 0, 0, 35) + (0,) * 6 + (0, 7000, 0, 0, 0, 9000) + (0,) * 6
LATE = (9600000000, 2000, 40, 1, 3400000, 4, 3) + (0, 5, 0, 10, 25) + (0,) * 7 + (0, 7000, 0, 8000, 9000) + (0,) * 7


def try_verdicts():
    """Of made-up ranks: one that knows of late operations, of few, of none; one whose verdicts are off."""
    name = {"name": b"verdicts"}
    few = LATE[:1] + (100000,) + LATE[2:]
    nobody = (9600000000, 2000) + (0,) * 3 + (0, -1) + (0,) * 24
    told = (9600000000, 0, 7, 0, 3400000, 99, -1, 7) + (0,) * 23  # a phase that is not known here
    made = [Made(0, verdict=LATE, **name), Made(1, verdict=few, **name), Made(2, verdict=nobody, **name),
            Made(3, verdict=told, role=1, **name), Made(4, world=5, **name)]
    text = tool(TOP, "--once", "-i", "0.1", "--job", "verdicts").stdout
    check_plain(text)
    lines = text.splitlines()
    states = [line.split(" 6 ", 1)[1] for line in lines if re.match(r" +\d (attn|ffn) ", line)]
    assert states == ["late: FFN work 3", "up", "up", "up", "up"], states
    late = [line for line in lines if " late in " in line]
    assert late == ["rank 0: 40 of 2000 late in 10 s: 25 FFN work at rank 3, 10 FFN queue, 5 start",
                    "rank 1: 40 of 100000 late in 10 s: 25 FFN work at rank 3, 10 FFN queue, 5 start",
                    "rank 3: 7 late in 10 s: 7 unknown"], late
    by_rail = Made(0, verdict=BACK, late=[{}, {}, {}], rail=1, name=b"rail")
    text = tool(TOP, "--once", "-i", "0.1", "--job", "rail").stdout
    check_plain(text)
    assert "rank 0: 40 of 2000 late in 10 s: 35 way back at rank 3 by rail 1, 5 start" in text.splitlines(), text
    rank, = json.loads(tool(TOP, "--once", "--json", "-i", "0.1", "--job", "rail").stdout)["ranks"]
    assert (rank["verdict"]["phase"], rank["verdict"]["peer"], rank["verdict"]["rail"]) == ("way back", 3, 1), rank
    by_rail.kill()
    ranks = json.loads(tool(TOP, "--once", "--json", "-i", "0.1", "--job", "verdicts").stdout)["ranks"]
    assert ranks[0]["verdict"] == {"window_s": 9.6, "operations": 2000, "late": 40, "unjudged": 1, "usual_us": 3400,
                                   "phase": "FFN work", "peer": 3, "rail": None,
                                   "by_phase": {"start": 5, "FFN queue": 10, "FFN work": 25},
                                   "over_us": {"start": 7, "FFN queue": 8, "FFN work": 9}}, ranks[0]
    assert [rank["verdict"] and rank["verdict"]["late"] for rank in ranks] == [40, 40, 0, 7, None]
    for rank in made:
        rank.kill()


def try_rails():
    """What stepaf-top says of them, and of one that is given up; of an older library there are none."""
    made = [Made(0, rails=RAILS, name=b"rails"), Made(1, name=b"rails")]
    with_rails, without = json.loads(tool(TOP, "--once", "--json", "-i", "0.1", "--job", "rails").stdout)["ranks"]
    assert with_rails["peers"][1]["retries"] == {"connect": 11, "message": 21}, with_rails
    assert with_rails["peers"][1]["rails"] == [
        {"rail": 0, "device": "mlx5_0:1", "up": True, "sent_bytes_per_s": 0},
        {"rail": 1, "device": "mlx5_1:1", "up": False, "sent_bytes_per_s": 0}], with_rails
    assert without["peers"][0]["rails"] == [] and without["peers"][0]["retries"]["connect"] == 0, without
    for rank in made:
        rank.kill()


def try_turns():
    """A link's rate is of the time between two writings of it, which are not in every look where there are many peers."""
    # What is written last wraps.
    data = bytearray(rank_data(os.getpid(), 0, rails=RAILS, written_us=(1 << 32) - 500000, name=b"turns"))
    fd = make_file(bytes(data))
    sampler = load(TOP).Sampler("turns")
    peer_bytes = regions.PEER.size + PEER_MORE
    peers_at = struct.unpack_from("=4I", data, 24 + 16)[0]

    def write(seconds, *peers):
        """Anew, @seconds after the last time, and these entries with a million bytes more and as 2 s after they were."""
        written, = struct.unpack_from("=q", data, regions.LIVE_AT + 8)
        struct.pack_into("=q", data, regions.LIVE_AT + 8, written + int(seconds * 1e9))
        for p in peers:
            at = peers_at + p * peer_bytes
            more_at = at + regions.PEER.size
            for sent_at in at + 24, at + 32, more_at + regions.AGAIN.size:
                sent, = struct.unpack_from("=Q", data, sent_at)
                struct.pack_into("=Q", data, sent_at, sent + 1000000)
            was, = struct.unpack_from("=I", data, more_at + 12)
            struct.pack_into("=I", data, more_at + 12, (was + 2000000) % (1 << 32))
        os.pwrite(fd, bytes(data), 0)

    def rates():
        view, = sampler.sample()
        return [(peer["sent_bytes_per_s"], peer["received_bytes_per_s"], peer["rails"][0]["sent_bytes_per_s"])
                for peer in view["peers"]]
    assert rates() == [(0,) * 3] * 2
    # Whether it is in this look, and while the rank writes on; not where it writes no more.
    for seconds, peers, expected in ((1, (0,), (5e5, 0)), (1, (), (5e5, 0)), (1, (1,), (5e5, 5e5)), (0.5, (0,), (5e5, 5e5)),
                                     (0, (), (0, 0)), (1, (), (5e5, 5e5))):
        write(seconds, *peers)
        assert rates() == [(rate,) * 3 for rate in expected], (seconds, peers)
    os.close(fd)


def is_well(line):
    return re.search(r" (up|late: [\w ]+)$", line.rstrip())


def try_top():
    result = tool(TOP, "--once", "--interval", "0.3")
    assert result.returncode == 0, result.stderr
    check_plain(result.stdout)
    for pid in job_pids:
        line, = [line for line in result.stdout.splitlines() if f" {pid} " in line]
        assert is_well(line), line
    ranks = [json.loads(line) for line in tool(TOP, "--once", "--json", "--interval", "0.5").stdout.splitlines()]
    views = {view["pid"]: view for view in ranks[0]["ranks"] if view["pid"] in job_pids}
    assert sorted(views) == sorted(job_pids)
    for view in views.values():
        assert view["operations_per_s"] > 0 and view["sent_bytes_per_s"] > 0, view
        assert view["p50_us"] and view["p50_us"] <= view["p99_us"], view
        assert view["role"] == "ffn" or view["verdict"]["operations"] > 0, view
        assert len(view["peers"]) == 2 and all(peer["sent_bytes_per_s"] > 0 for peer in view["peers"])
        rails = [rail for peer in view["peers"] for rail in peer["rails"]]
        assert len(rails) == 4 and all(rail["up"] and rail["sent_bytes_per_s"] > 0 for rail in rails), view
    # Only those that were asked for; nobody is no mistake, but is told.
    job = next(iter(views.values()))["job"]
    assert len(json.loads(tool(TOP, "--once", "--json", "--job", job, "-i", "0.1").stdout)["ranks"]) == len(job_pids)
    none = tool(TOP, "--once", "--job", "no such job", "-i", "0.1")
    assert none.returncode == 1 and "no libstepaf rank" in none.stdout
    assert tool(TOP, "--interval", "0").returncode == 2
    # Piped it goes on, until nobody reads.
    with running([sys.executable, TOP, "-i", "0.1", "--job", job], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                 text=True) as piped:
        lines = [piped.stdout.readline() for _ in range(40)]
        piped.stdout.close()
        assert piped.wait(LIMIT_S) == 0, piped.stderr.read()
        assert sum(line.startswith("rank role") for line in lines) >= 2
        assert not piped.stderr.read()


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, words, columns, lines, term, hangup=signal.SIG_DFL):
        import pty
        import pyte
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.environ["TERM"] = term
            for name in ("LINES", "COLUMNS"):
                os.environ.pop(name, None)
            signal.signal(signal.SIGHUP, hangup)
            os.execv(sys.executable, [sys.executable, *words])
        self.resize(columns, lines)

    def resize(self, columns, lines):
        import termios
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def read(self, wait_s=0.2):
        """False: it has ended."""
        while select.select([self.fd], [], [], wait_s)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return False
            if not data:
                return False
            self.raw += data
            self.stream.feed(data)
        return True

    def await_text(self, *texts):
        def holds():
            self.read()
            return all(any(text in line for line in self.screen.display) for text in texts)
        try:
            await_that(f"no {texts}", holds)
        except AssertionError:
            print("\n".join(self.screen.display))
            raise

    def reverse_line(self):
        return [y for y, row in self.screen.buffer.items() if row[0].reverse]

    def end(self, key):
        os.write(self.fd, key)
        until = time.monotonic() + LIMIT_S
        while self.read() and time.monotonic() < until:
            pass
        assert os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) == 0
        os.close(self.fd)


def try_screen():
    for columns, lines, term in ((80, 24, "xterm-256color"), (80, 24, "vt100"), (132, 50, "linux"), (60, 10, "xterm")):
        terminal = Terminal([TOP, "-i", "0.2", "--job", seen_job()], columns, lines, term)
        terminal.await_text("rank role", "attn 0", "q quit")
        display = terminal.screen.display
        assert display[lines - 1].startswith("q quit"), display
        assert re.search(rb"\x1b\[[0-9;]*[34][0-7]m", terminal.raw) is None, "it has colours"
        if columns >= 80:
            for pid in job_pids:
                assert any(f" {pid} " in line and is_well(line) for line in display), display
            terminal.await_text("round p50", "tcp")
            os.write(terminal.fd, b"j" * 3)  # to the last FFN rank
            terminal.await_text("work p50")
            row, = terminal.reverse_line()
            assert "ffn 1" in terminal.screen.display[row], terminal.screen.display
            up = b"\x1b[A" if term == "linux" else b"\x1bOA"
            os.write(terminal.fd, b"j" + up * 2 + b"k")  # past the end, and back
            terminal.await_text("round p50")
        terminal.resize(30, 6)
        terminal.await_text("too small")
        terminal.resize(columns, lines)
        terminal.await_text("rank role", "q quit")
        terminal.end(b"q")
    # One that goes away while nobody is told so.
    gone = Terminal([TOP, "-i", "5", "--job", seen_job()], 80, 24, "xterm", signal.SIG_IGN)
    gone.await_text("rank role")
    os.close(gone.fd)
    ended = await_that("it goes on without a terminal", lambda: [end for end in [os.waitpid(gone.pid, os.WNOHANG)] if end[0]])
    assert os.waitstatus_to_exitcode(ended[0][1]) == 0, ended
    dumb = Terminal([TOP, "-i", "0.2", "--once", "--job", seen_job()], 80, 24, "dumb")
    dumb.await_text("rank role")
    dumb.end(b"")


def seen_job():
    return next(rank.job for rank in regions.find_ranks() if rank.pid in job_pids)


# stepaf-exporter.

def sample(text, name, **labels):
    """Its values."""
    values = []
    for line in text.splitlines():
        match = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line)
        if match and match[1] == name:
            has = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2]))
            if all(has.get(label) == value for label, value in labels.items()):
                values.append(float(match[3]))
    return values


def get(url, accept="text/plain"):
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def judge(text):
    """By promtool, if it is there."""
    promtool = os.environ.get("PROMTOOL")
    if promtool:
        result = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True,
                                timeout=LIMIT_S)
        assert result.returncode == 0 and not result.stdout and not result.stderr, (result.stdout, result.stderr)


def check_real(text):
    job = seen_job()
    judge(text)
    assert sample(text, "stepaf_rank_up", stepaf_job=job) == [1] * 4
    assert all(n > 0 for n in sample(text, "stepaf_operations_completed_total", stepaf_job=job, role="attention"))
    assert len(sample(text, "stepaf_late_operations_total", stepaf_job=job, phase="FFN work")) >= 4 * 3, text
    links = sample(text, "stepaf_link_up", stepaf_job=job)
    assert sample(text, "stepaf_rail_up", stepaf_job=job, device="") == [1] * 2 * len(links) == [1] * 16, text
    for rank in range(4):
        for peer in (2, 3) if rank < 2 else (0, 1):
            labels = {"stepaf_job": job, "rank": str(rank), "peer": str(peer)}
            whole, = sample(text, "stepaf_link_sent_bytes_total", **labels)
            parts = sample(text, "stepaf_rail_sent_bytes_total", **labels)
            assert len(parts) == 2 and min(parts) > 0.4 * whole and sum(parts) == whole, (whole, parts)
    assert len(sample(text, "stepaf_link_retries_total", stepaf_job=job)) == 2 * len(links)
    for name, role in (("stepaf_operation_duration_seconds", "attention"), ("stepaf_batch_work_seconds", "ffn")):
        counts = sample(text, name + "_count", stepaf_job=job, role=role)
        assert len(counts) == 4 and all(counts), (name, counts)
        assert sample(text, name + "_bucket", stepaf_job=job, le="+Inf") == counts
        buckets = sample(text, name + "_bucket", stepaf_job=job, rank="0" if role == "attention" else "2")
        half = len(buckets) // 2
        assert buckets[:half] == sorted(buckets[:half])
        assert all(0 < total < 1000 for total in sample(text, name + "_sum", stepaf_job=job))


def try_exporter():
    await_that("no times", lambda: sample(tool(EXPORTER, "--once").stdout, "stepaf_batch_work_seconds_count",
                                          stepaf_job=seen_job()))
    time.sleep(0.5)
    text = tool(EXPORTER, "--once").stdout
    check_real(text)
    with running([sys.executable, EXPORTER, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                 text=True) as server:
        url = "http://" + server.stdout.readline().split()[-1] + "/metrics"
        kind, text = get(url)
        assert kind.startswith("text/plain"), kind
        check_real(text)
        kind, text = get(url, "application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text") and text.endswith("# EOF\n"), kind
        # Who connects and says nothing does not keep others waiting.
        with socket.create_connection(url.split("/")[2].split(":")):
            get(url)
        try_lives(url)
        try_out(url)
        try_late(url)
        try_rail_metrics(url)
        try_two_jobs()
        try_left_out()
        server.send_signal(signal.SIGTERM)
        assert server.wait(LIMIT_S) == 0
    busy = socket.create_server(("127.0.0.1", 0))
    refused = tool(EXPORTER, "--listen", "127.0.0.1:%d" % busy.getsockname()[1])
    assert refused.returncode == 1 and "in use" in refused.stderr, refused
    try_socket()
    try_textfile()
    try_links()


def try_lives(url):
    """A rank that is killed, and one that takes its place."""
    name = {"name": b"made \"up\"\\"}
    labels = {"stepaf_job": r"made \"up\"\\", "rank": "1"}
    first, second = Made(0, **name), Made(1, times=(9, 20), **name)
    text = get(url)[1]
    judge(text)
    assert sample(text, "stepaf_rank_up", **labels) == [1] and sample(text, "stepaf_rank_life", **labels) == [1]
    for field, value in COUNTED.items():
        counter = "_".join(sorted(field.split("_")))
        found = [m for m in set(re.findall(r"^stepaf_\w+_total", text, re.M))
                 if sample(text, m, **labels) == [value * (1e-9 if field.endswith("_ns") else 1)]]
        assert found, counter
    assert sample(text, "stepaf_operation_duration_seconds_count", peer="2", **labels) == [10]
    assert sample(text, "stepaf_operation_duration_seconds_bucket", peer="2", le="1.024e-06", **labels) == [0]
    assert sample(text, "stepaf_operation_duration_seconds_bucket", peer="2", le="2.048e-06", **labels) == [10]
    second.kill()
    text = get(url)[1]
    judge(text)
    assert sample(text, "stepaf_rank_up", **labels) == [0] and not sample(text, "stepaf_epoch", **labels)
    assert sample(text, "stepaf_rank_up", stepaf_job=labels["stepaf_job"], rank="0") == [1]
    third = Made(1, life=2, lost=(0,), reason=b"it has ended", **name)
    text = get(url)[1]
    judge(text)
    assert sample(text, "stepaf_rank_up", **labels) == [1] and sample(text, "stepaf_rank_life", **labels) == [2]
    assert sample(text, "stepaf_link_up", **labels) == [0, 1]
    shown = tool(TOP, "--once", "-i", "0.1", "--job", 'made "up"\\').stdout
    assert "1 lost, life 2" in shown and "lost: it has ended" in shown, shown
    first.kill()
    third.kill()


def try_out(url):
    """A number that is reserved, and a rank that has left, are no links that are down."""
    made = Made(0, lost=(0, 1), out=(0,), reason=b"no process has joined yet", name=b"out")
    text = get(url)[1]
    judge(text)
    labels = {"stepaf_job": "out", "rank": "0"}
    assert not sample(text, "stepaf_link_up", peer="2", **labels) and sample(text, "stepaf_link_up", peer="3", **labels) == [0]
    assert [sample(text, f"stepaf_peers{name}", **labels) for name in ("", "_alive", "_out")] == [[2], [0], [1]]
    shown = tool(TOP, "--once", "-i", "0.1", "--job", "out").stdout
    assert " 1 lost\n" in shown and "2 out: no process has joined yet" in shown and "3 lost: no process" in shown, shown
    made.kill()


def try_two_jobs():
    """With one name: it is said once, and what is served is still well-formed."""
    made = [Made(0, job=number, name=b"two") for number in (1, 2)]
    with running([sys.executable, EXPORTER, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                 stderr=subprocess.PIPE, text=True) as server:
        url = "http://" + server.stdout.readline().split()[-1] + "/metrics"
        for _ in range(2):
            text = get(url)[1]
            judge(text)
            assert sample(text, "stepaf_rank_up", stepaf_job="two") == [1]
            assert f'pid="{made[1].pid}"' in text and f'pid="{made[0].pid}"' not in text
        server.terminate()
        said = server.communicate(timeout=LIMIT_S)[1]
    # The machine may have other jobs.
    assert said.count("the name 'two'") == 1, said
    end_all(made)


def left_out(*words):
    """What it serves of the job "bounds", what it has left out, by reason, and what it says of that."""
    result = tool(EXPORTER, "--once", *words)
    judge(result.stdout)
    return (len(sample(result.stdout, "stepaf_rank_up", stepaf_job="bounds")),
            [sample(result.stdout, "stepaf_exporter_left_out_files", reason=reason)[0] for reason in ("bytes", "owner")],
            "".join(line for line in result.stderr.splitlines(True) if "several jobs" not in line))


def try_left_out():
    fds = [make_file(rank_data(os.getpid(), 0, name=b"bounds")), make_file(large_data(0), size=1 << 30)]
    shown, n, said = left_out()
    assert (shown, n) == (1, [1, 0]) and "1 files were left out: one scrape reads at most 64 MiB of one user's files" in said, (shown, n, said)
    os.close(fds[1])
    assert left_out() == (1, [0, 0], "")
    if os.geteuid() == 0:
        os.fchown(fds[0], 65534, 65534)
        shown, n, said = left_out()
        assert (shown, n) == (0, [0, 1]) and "--all-users" in said, (shown, n, said)
        assert left_out("--all-users") == (1, [0, 0], "")
    os.close(fds[0])


def try_late(url):
    """Each late operation once: with its peer, and with its rail, where verdicts name them. By word of the entry: phases,
    then the rails of the ways."""
    there, work, back, start = (regions.PHASES.index(name) for name in ("way there", "FFN work", "way back", "start"))
    rails = 12 + 16  # behind the phases those of way there, then of way back
    late = [{work: 4, back: 9, rails + 1: 6, rails + 15: 2}, {there: 3, 12: 3}, {start: 5}]
    made = [Made(0, late=late, verdict=LATE, name=b"late"), Made(1, name=b"late")]
    text = get(url)[1]
    judge(text)

    def counted(**labels):
        return sample(text, "stepaf_late_operations_total", stepaf_job="late", **labels)
    assert counted(rank="1") == []
    assert sum(counted(rank="0")) == 4 + 9 + 3 + 5
    assert counted(peer="2", phase="FFN work") == [4] and counted(peer="", phase="start") == [5]
    assert [counted(peer="2", phase="way back", rail=rail) for rail in ("", "1", "15")] == [[1], [6], [2]]
    assert [counted(peer="3", phase="way there", rail=rail) for rail in ("", "0")] == [[0], [3]]
    for rank in made:
        rank.kill()


def try_rail_metrics(url):
    made = Made(0, rails=RAILS, name=b"rails"), Made(1, name=b"rails")
    text = get(url)[1]
    judge(text)
    labels = {"stepaf_job": "rails", "rank": "0", "peer": "3"}
    for rail, (sent, up, device) in enumerate(RAILS):
        of = {"rail": str(rail), "device": device.decode(), **labels}
        assert sample(text, "stepaf_rail_sent_bytes_total", **of) == [sent + 1], (of, text)
        assert sample(text, "stepaf_rail_up", **of) == [up]
    for kind, n in (("connect", 11), ("message", 21)):
        assert sample(text, "stepaf_link_retries_total", kind=kind, **labels) == [n]
    assert not sample(text, "stepaf_rail_up", stepaf_job="rails", rank="1")
    for rank in made:
        rank.kill()




def is_closed(client):
    try:
        return not client.recv(1)
    except OSError as error:
        return isinstance(error, ConnectionError)


def try_slow_clients():
    """Who says a byte now and then holds no connection for ever, and as many of them as may be keep nobody out."""
    exporter = load_exporter()
    exporter.Handler.timeout = 60

    def app(_, start):
        start("200 OK", [])
        return [b"here"]
    for limit_s in (60, 0.5):
        exporter.REQUEST_S = limit_s
        before = threading.active_count()
        server = exporter.Server(("127.0.0.1", 0), exporter.Handler)
        server.set_app(app)
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        clients = [socket.create_connection(server.server_address) for _ in range(3 * exporter.MOST_CONNECTIONS)]
        assert get("http://%s:%d/metrics" % server.server_address)[1] == "here"
        await_that("threads for more connections than there may be",
                   lambda: threading.active_count() - before <= exporter.MOST_CONNECTIONS + 1)
        for client in clients:
            client.setblocking(False)
        if limit_s < 1:
            def are_all_closed():
                left[:] = [client for client in left if not is_closed(client)]
                for client in left:
                    with contextlib.suppress(OSError):
                        client.send(b"x")
                return not left
            left = list(clients)
            await_that("they are held for ever", are_all_closed)
        for client in clients:
            client.close()
        server.shutdown()
        server.server_close()


def try_without_descriptors():
    """It tries again now and then, not all the time."""
    exporter, tries = load_exporter(), []

    def refuse():
        tries.append(1)
        raise OSError(errno.EMFILE, "")
    server = exporter.Server(("127.0.0.1", 0), exporter.Handler)
    address, real = server.server_address, server.socket
    server.socket = types.SimpleNamespace(accept=refuse, fileno=real.fileno, close=real.close)
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    with socket.create_connection(address):
        time.sleep(1)
        server.shutdown()
    server.server_close()
    assert 1 <= len(tries) <= 10, len(tries)


def try_socket():
    path = os.path.join(directory, "socket")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    with running([sys.executable, EXPORTER, "--socket", path]) as server:
        def ask():
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(LIMIT_S)
                try:
                    client.connect(path)
                except OSError:
                    return None
                client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                return b"".join(iter(lambda: client.recv(65536), b""))
        answer = await_that("no answer by the socket", ask)
        assert b" 200 " in answer.split(b"\r\n")[0] and b"stepaf_rank_up{" in answer
        # One that is in use is not taken away.
        assert tool(EXPORTER, "--socket", path).returncode == 1
        assert ask()
        server.terminate()
        assert server.wait(LIMIT_S) == 0
    assert not os.path.exists(path)


def try_textfile():
    path = os.path.join(directory, "stepaf.prom")
    with running([sys.executable, EXPORTER, "--textfile", path, "--interval", "0.1"]) as writer:
        await_that("no file", lambda: os.path.exists(path))
        inode = os.stat(path).st_ino
        await_that("the file is not replaced", lambda: os.stat(path).st_ino != inode)
        writer.terminate()
        assert writer.wait(LIMIT_S) == 0
    with open(path, encoding="utf-8") as file:
        check_real(file.read())
    fifo = os.path.join(directory, "pipe.prom")
    os.mkfifo(fifo)
    with running([sys.executable, EXPORTER, "--textfile", fifo, "--interval", "0.1"]) as writer:
        try:
            reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
            await_that("bytes in the pipe", lambda: select.select([reader], [], [], 0.1)[0] and os.read(reader, 1))
            assert stat.S_ISFIFO(os.lstat(fifo).st_mode), "the pipe is one no more"
        finally:
            writer.kill()
    assert not [name for name in os.listdir(directory) if re.search(r"\.[0-9a-f]{16}$", name)]
    assert tool(EXPORTER, "--textfile", path[:-5]).returncode == 2
    assert tool(EXPORTER, "--textfile", "/nowhere/a.prom").returncode == 1


def try_links():
    """One of another user's is not followed where others may write; one's own is, and stays."""
    exporter = load_exporter()
    place, mine = os.path.join(directory, "place"), os.path.join(directory, "mine")
    link = os.path.join(place, "link.prom")
    os.mkdir(place)
    os.chmod(place, 0o1777)
    for owner in (os.geteuid(), 65534):
        with open(mine, "w", encoding="utf-8") as file:
            file.write("mine")
        os.symlink("../mine", link)
        try:
            os.chown(link, owner, -1, follow_symlinks=False)
        except PermissionError:
            return
        try:
            exporter.write_file(link, b"metrics")
        except OSError as error:
            assert owner == 65534 and "another user's link" in error.strerror
        with open(mine, encoding="utf-8") as file:
            assert file.read() == ("mine" if owner == 65534 else "metrics")
        assert os.path.islink(link) and os.listdir(place) == ["link.prom"]
        os.unlink(link)
    # Nor is a name that is there already written through: the partial file's is drawn, and made anew.
    exporter.secrets = types.SimpleNamespace(token_hex=lambda n: "0" * 2 * n)
    os.symlink("../mine", link + "." + "0" * 16)
    try:
        exporter.write_file(link, b"metrics")
        assert False, "it has written through a link"
    except FileExistsError:
        pass


def try_full():
    """Standard output that takes nothing (here by a limit of the size of files), and programs without their module: a
    sentence each."""
    for words, name in (((TOP, "--once", "-i", "0.1"), "stepaf-top"), ((EXPORTER, "--once"), "stepaf-exporter")):
        alone = os.path.join(directory, name)
        shutil.copy(words[0], alone)
        result = tool(alone, "--once")
        assert result.returncode == 1, result
        assert re.fullmatch(name + r": stepaf_regions.py is neither [^\n]+\n", result.stderr), result.stderr
        if words[0] == EXPORTER and not importlib.util.find_spec("prometheus_client"):
            continue
        with open(os.path.join(directory, "full"), "wb") as full:
            result = subprocess.run([sys.executable, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S,
                                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
        assert result.returncode == 1, result
        assert re.fullmatch(name + r": standard output: [^\n]+\n", result.stderr), result.stderr


def check_dashboard():
    """It names only metrics and labels that there are."""
    text = tool(EXPORTER, "--once").stdout
    families = set(re.findall(r"^# TYPE (\w+)", text, re.M))
    for histogram in re.findall(r"^# TYPE (\w+) histogram", text, re.M):
        families.update(histogram + end for end in ("_bucket", "_sum", "_count"))
    with open(os.path.join(source, "tools/stepaf-grafana.json"), encoding="utf-8") as file:
        dashboard = json.load(file)
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
    assert len(expressions) > 20
    with open(os.path.join(source, "docs/metrics.md"), encoding="utf-8") as file:
        words = file.read()
    named = set(re.findall(r"\bexpr: (stepaf_\w+)", words))
    for family in re.findall(r"`(stepaf_[\w{},]+)`", words):
        match = re.fullmatch(r"(\w*)\{([\w,]+)\}(\w*)", family)
        named.update([match[1] + word + match[3] for word in match[2].split(",")] if match else [family])
    for expression in expressions:
        named.update(re.findall(r"\bstepaf_\w+", expression.replace("stepaf_job", "")))
    assert named - families == set(), named - families
    missing = {f for f in families if not f.endswith(("_bucket", "_sum", "_count", "_created"))} - named
    assert missing == set(), f"docs/metrics.md lacks {missing}"


def main():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    check_names()
    try_reader()
    try_full()
    try_large()
    try_swap()
    try_bounds()
    try_runs()
    try_ends()
    try_stopped()
    try_verdicts()
    try_rails()
    try_turns()
    try_top()
    lacks = []
    try:
        import pyte  # noqa: F401
        try_screen()
    except ImportError:
        lacks.append("pyte, so no screen was looked at")
    try:
        import prometheus_client  # noqa: F401
        try_exporter()
        check_dashboard()
        # Last, since they have threads: nothing that forks comes behind them.
        try_slow_clients()
        try_without_descriptors()
    except ImportError:
        lacks.append("prometheus_client, so stepaf-exporter was not run")
    if not os.environ.get("PROMTOOL"):
        lacks.append("promtool")
    with open(os.path.join(directory, "lacks"), "w", encoding="utf-8") as file:
        file.write("; ".join(lacks))


if __name__ == "__main__":
    main()
