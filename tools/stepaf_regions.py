# SPDX-License-Identifier: Apache-2.0
"""What ranks of libstepaf show of themselves (src/core/metrics_layout.h), for stepaf-top and stepaf-exporter.

Each rank has a file in memory, which is found among the descriptors of its process. Nothing in it is believed: it is
copied, and what does not lie where it must is no rank."""
import dataclasses
import fcntl
import functools
import os
import stat
import struct
import time

LINK = "/memfd:stepaf:metrics (deleted)"
MAGIC = b"stepaf\r\n"
VERSION = 1
HEAD = struct.Struct("=8sIIQ" + 3 * "IIII")
WHO = struct.Struct("=QIIiiiI32s64s32s")
LIVE = struct.Struct("=QqQQIIIIq")
PEER = struct.Struct("=iiIIIIQQQq32s48s96s")
AGAIN = struct.Struct("=IIII")  # behind it, of later libraries: what was done again, how many rails, when it was written,
RAIL = struct.Struct("=QI28s")  # and these
PEER_RAILS = 8
VERDICT = struct.Struct("=qQQQqii12Q12q")
MORE = struct.Struct("=iI4I")  # of the verdict, which rail; a fourth table
LATE = struct.Struct("=12I48I")
WHO_AT = HEAD.size
LIVE_AT = WHO_AT + WHO.size
WISH_AT = LIVE_AT + LIVE.size
LEAST_BYTES = WISH_AT + 8
VERDICT_AT = LEAST_BYTES
MORE_AT = VERDICT_AT + VERDICT.size
MOST_BYTES = 1 << 30  # of a file, which may have holes: so much is not read
MOST_COUNTERS, MOST_PEERS = 1024, 1 << 14
MOST_LARGER = 8  # an entry of a later library, than what is known of it
MOST_TRIES = 20
MOST_LOOK_BYTES = 64 << 20  # of all files of one user, in one look that has a bound: some 28,000 peers
FILE_BYTES = 4096  # as much a file counts for at least, and each try to read it
ROLES = ("attention", "ffn")
TIMES = {"attention": ("round", "ways"), "ffn": ("queue", "work")}  # of each peer
N_TIMES = 2
LOW_BITS, HIGH_BITS, STEP_BITS = 8, 34, 2
BUCKETS = ((HIGH_BITS - LOW_BITS) << STEP_BITS) + 2
LOST, OUT = 1, 2
ORDERLY = ("it has finalized", "it has left")  # reasons of peers that have ended as they were meant to
RAIL_UP = 1
F_GET_SEALS, SEALS = 1034, 1 | 2 | 4  # seal, shrink, grow
COUNTERS = ("operations_started", "operations_completed", "operations_failed", "batches_received",
            "responses_sent", "bytes_sent", "bytes_received", "would_block", "queued",
            "dropped_malformed", "dropped_stale", "late", "peers_lost", "yields", "incomplete",
            "left_out", "thread_busy_ns")
PHASES = ("unknown", "start", "way there", "FFN queue", "FFN work", "way back", "wait", "starved", "network")
WAYS, RAILS = ("way there", "way back", "network"), 16  # phases that name rails


class Malformed(Exception):
    """This is no file of a rank, or one of another version."""


class TooMuch(Exception):
    """The look has no bytes left for it."""


class Look:
    """What one look at all files may read of each user's, whose files it believes, and how many it has left out."""

    def __init__(self, most_bytes=None, owners=None):
        """None: as many bytes as there are, all users."""
        self.most_bytes, self.owners = most_bytes, owners
        self.left = {}  # bytes, by owner
        self.n_large = self.n_foreign = 0

    def take(self, owner, n):
        if self.most_bytes is None:
            return
        left = self.left.setdefault(owner, self.most_bytes)
        if n > left:
            raise TooMuch
        self.left[owner] = left - n

    def believes(self, owner):
        return self.owners is None or owner in self.owners


def bucket_end_ns(index):
    """Where bucket @index ends; the last one has no end."""
    if index == 0:
        return 1 << LOW_BITS
    octave, step = divmod(index - 1, 1 << STEP_BITS)
    return (1 << (LOW_BITS + octave)) * ((1 << STEP_BITS) + step + 1) // (1 << STEP_BITS)


BUCKET_ENDS_NS = [bucket_end_ns(i) for i in range(BUCKETS - 1)]


@dataclasses.dataclass
class Histogram:
    sum_ns: int
    buckets: list

    def since(self, before):
        """What has come since @before. What has become less is another process's."""
        if before is None or any(a < b for a, b in zip(self.buckets, before.buckets)):
            return self
        return Histogram(max(self.sum_ns - before.sum_ns, 0),
                         [a - b for a, b in zip(self.buckets, before.buckets)])

    def quantile_us(self, q):
        """None: it is empty. The middle of the value's bucket, which is an eighth off at most."""
        left = q * sum(self.buckets)
        for i, count in enumerate(self.buckets):
            if count and left <= count:
                start = BUCKET_ENDS_NS[i - 1] if i else 0
                end = BUCKET_ENDS_NS[i] if i < BUCKETS - 1 else start
                return (start + end) / 2 / 1e3
            left -= count
        return None


@dataclasses.dataclass
class Rail:
    """One way to a peer of several, or the only one: an RDMA device's port, or a connection of TCP."""
    bytes_sent: int
    up: bool  # False: it is given up, the others go on
    device: str


@dataclasses.dataclass
class Peer:
    world_rank: int
    rank: int
    lost: bool
    out: bool
    queued: int
    ready: int
    lives: int
    bytes_sent: int
    bytes_received: int
    messages_sent: int
    clock_bound_ns: int
    link: str
    address: str
    reason: str
    connects_again: int = 0
    messages_again: int = 0
    written_us: int = 0  # the low 32 bits of CLOCK_MONOTONIC; a rank writes some of many peers at a time. 0: not known
    rails: list = dataclasses.field(default_factory=list)  # Rail, by number; none where there are no such
    times: dict = dataclasses.field(default_factory=dict)  # Histogram by name


@dataclasses.dataclass
class Verdict:
    """Of the last seconds: which operations were late, and whose time it was."""
    window_ns: int
    operations: int
    late: int
    unjudged: int
    usual_ns: int
    phase: str  # by which most were late
    peer: int   # at which world rank; -1: the rank itself, or none
    rail: int   # the one of several to that peer that was late; -1: all were, or none
    by_phase: dict  # late operations, where there are any
    over_ns: dict


@dataclasses.dataclass
class Late:
    """Late operations ever, by verdicts that name a peer, or none."""
    peer: int       # world rank; -1: none
    by_phase: dict  # all phases that are known here
    by_rail: dict   # of these, by (phase, rail), where there are any


@dataclasses.dataclass
class Rank:
    pid: int
    job: str
    role: str
    world_rank: int
    world_size: int
    rank: int
    host: str
    version: str
    epoch: int
    commits: int
    alive: int
    life: int
    measures: bool
    written_ns: int
    began_ns: int
    counters: dict
    peers: list
    verdict: Verdict = None  # None: its verdicts are off
    late: list = dataclasses.field(default_factory=list)  # Late, none without verdicts
    gone_ns: int = 0  # CLOCK_MONOTONIC: since then there is no such process any more; 0: there is
    number: int = 0   # of the job, also of one that has a name: another run has another one
    seen_ns: int = 0  # when a Watch last knew that it lived
    was_missed: bool = False  # it is gone, and a rank of its job that lived had lost it, not by its finalize
    is_steady: bool = True  # False: its process stands still while it writes, or it is too large: no figure of it is known

    @property
    def key(self):
        return self.job, self.world_rank

    @property
    def process(self):
        return self.key, self.pid, self.began_ns


def own_version():
    """Of the libstepaf that this belongs to."""
    here = os.path.dirname(os.path.realpath(__file__))
    for path in (os.path.join(here, "VERSION"), os.path.join(here, "..", "VERSION")):
        try:
            with open(path, encoding="ascii") as lines:
                return next(line.split("=", 1)[1].strip() for line in lines if line.startswith("version="))
        except (OSError, ValueError, StopIteration):
            pass
    return "of an unknown version"


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def text(field):
    """Up to the first zero; no control characters."""
    chars = field.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\ufffd" for c in chars)


def pread(fd, n, at):
    got = os.pread(fd, n, at)
    if len(got) != n:
        raise Malformed
    return got


def read_head(fd):
    """How many bytes the head has, and the tables, as (at, bytes, n)."""
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode) or not LEAST_BYTES <= info.st_size <= MOST_BYTES:
        raise Malformed
    if fcntl.fcntl(fd, F_GET_SEALS) & SEALS != SEALS:
        raise Malformed
    magic, version, head, size, *tables = HEAD.unpack(pread(fd, HEAD.size, 0))
    if magic != MAGIC or version != VERSION or head < LEAST_BYTES or size != info.st_size:
        raise Malformed
    tables = [tuple(tables[i:i + 3]) for i in range(0, 12, 4)]
    more = MORE.unpack(pread(fd, MORE.size, MORE_AT)) if head >= MORE_AT + MORE.size else (0,) * 6
    if more[4]:
        tables.append(more[2:5])
    for (at, each, n), least in zip(tables, (8, PEER.size, 8 * (BUCKETS + 1), LATE.size)):
        if at < head or not least <= each <= MOST_LARGER * least or at + each * n > size:
            raise Malformed
    if tables[0][1] != 8 or tables[0][2] > MOST_COUNTERS or tables[1][2] > MOST_PEERS:
        raise Malformed
    if tables[2][2] != tables[1][2] * N_TIMES or more[4] not in (0, tables[1][2] + 1):
        raise Malformed
    return head, (*tables, (0, 0, 0))[:4]


def read_steady(fd, take, *parts):
    """Words of one moment: live, and each part, which is (at, bytes, n). None: they are being written all the time."""
    for _ in range(MOST_TRIES):
        take(max(sum(each * n for _, each, n in parts), FILE_BYTES))
        live = LIVE.unpack(pread(fd, LIVE.size, LIVE_AT))
        read = [pread(fd, each * n, at) for at, each, n in parts]
        if live[0] % 2 == 0 and LIVE.unpack(pread(fd, LIVE.size, LIVE_AT))[0] == live[0]:
            return live, *read
        time.sleep(0.0002)
    return None


def read_times(fd, table, peer, names):
    at, each, _ = table
    times = {}
    data = pread(fd, each * N_TIMES, at + each * N_TIMES * peer)
    for i, name in enumerate(names):
        words = struct.unpack_from(f"={BUCKETS + 1}Q", data, each * i)
        if any(words[1:]):
            times[name] = Histogram(words[0], list(words[1:]))
    return times


def read_peer(data, at, each):
    """The entry of @each bytes at @at."""
    (world_rank, rank, flags, queued, ready, lives, sent, received, messages, bound, link, address,
     reason) = PEER.unpack_from(data, at)
    peer = Peer(world_rank, rank, bool(flags & LOST), bool(flags & OUT), queued, ready, lives, sent, received, messages,
                bound, text(link), text(address), text(reason))
    if each >= PEER.size + AGAIN.size + PEER_RAILS * RAIL.size:
        peer.connects_again, peer.messages_again, n, peer.written_us = AGAIN.unpack_from(data, at + PEER.size)
        for i in range(min(n, PEER_RAILS)):
            sent, flags, device = RAIL.unpack_from(data, at + PEER.size + AGAIN.size + i * RAIL.size)
            peer.rails.append(Rail(sent, bool(flags & RAIL_UP), text(device)))
    return peer


def read_late(table, data, peers):
    """Of each peer, and of the rank itself."""
    _, each, n = table
    late = []
    for i in range(n):
        words = LATE.unpack_from(data, i * each)
        by_rail = {(WAYS[k // RAILS], k % RAILS): count for k, count in enumerate(words[12:]) if count}
        late.append(Late(peers[i].world_rank if i < len(peers) else -1, dict(zip(PHASES, words)), by_rail))
    return late


def read_verdict(data, more):
    """None: it is off, or the library is older than this."""
    if not data:
        return None
    window_ns, operations, late, unjudged, usual_ns, phase, peer, *cells = VERDICT.unpack(data)
    if window_ns <= 0:
        return None
    if not 0 <= phase < len(PHASES):
        phase = 0  # of a later library
    by_phase, over_ns = ({name: n for name, n in zip(PHASES, part) if n} for part in (cells[:12], cells[12:]))
    rail = MORE.unpack(more)[0] if more else -1
    return Verdict(window_ns, operations, late, unjudged, usual_ns, PHASES[phase], peer, rail, by_phase, over_ns)


def read_rank(fd, pid, look):
    head, (counters, peers, histograms, late) = read_head(fd)
    job, own_pid, role, world_rank, world_size, rank, _, name, host, version = WHO.unpack(
        pread(fd, WHO.size, WHO_AT))
    if role >= len(ROLES) or not 0 <= world_rank < world_size or peers[2] > world_size:
        raise Malformed
    counters = counters[:2] + (min(counters[2], len(COUNTERS)),)
    verdict = VERDICT_AT, VERDICT.size, int(head >= VERDICT_AT + VERDICT.size)
    more = MORE_AT, MORE.size, int(head >= MORE_AT + MORE.size)
    take = functools.partial(look.take, os.fstat(fd).st_uid)
    try:
        take(histograms[1] * histograms[2])
        steady = read_steady(fd, take, counters, peers, verdict, more, late)
    except TooMuch:
        look.n_large += 1
        steady = None
    # When it began is written once, before all else.
    live = steady[0] if steady else (0,) * 8 + LIVE.unpack(pread(fd, LIVE.size, LIVE_AT))[8:]
    _, written_ns, epoch, commits, alive, _, life, measures, began_ns = live
    found = Rank(pid, text(name) or f"{job:016x}", ROLES[role], world_rank, world_size, rank, text(host), text(version),
                 epoch, commits, alive, life, bool(measures), written_ns, began_ns, {}, [], number=job,
                 is_steady=bool(steady))
    if not steady:
        return own_pid, found
    _, counted, described, judged, judged_more, told = steady
    values = struct.unpack(f"={counters[2]}Q", counted)
    found.counters = dict(zip(COUNTERS, values))
    for i in range(peers[2]):
        peer = read_peer(described, i * peers[1], peers[1])
        peer.times = read_times(fd, histograms, i, TIMES[ROLES[role]])
        found.peers.append(peer)
    found.verdict, found.late = read_verdict(judged, judged_more), read_late(late, told, found.peers)
    return own_pid, found


def pids_inside(proc, pid):
    """The numbers that a process has, also in its container."""
    with open(f"{proc}/{pid}/status", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("NSpid:"):
                return [int(word) for word in line.split()[1:]]
    return [pid]


def open_file(path, flags, look):
    """Its descriptor, None if it is no file of a rank that @look believes. What @path leads to is its process's to choose,
    and may change at any time: what is judged is held, and that alone is opened. To open a device may do something."""
    held = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        info = os.fstat(held)
        if not stat.S_ISREG(info.st_mode) or os.readlink(f"/proc/self/fd/{held}") != LINK:
            return None
        if not look.believes(info.st_uid):
            look.n_foreign += 1
            return None
        return os.open(f"/proc/self/fd/{held}", flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    finally:
        os.close(held)


def look_at(path, pid, proc, ask_s, look=None):
    """One file as a rank, None if it is none. @ask_s: for so long, its times are asked for."""
    look = look or Look()
    try:
        fd = open_file(path, os.O_RDWR if ask_s else os.O_RDONLY, look)
    except OSError:
        return None
    if fd is None:
        return None
    try:
        owner = os.fstat(fd).st_uid
        look.take(owner, FILE_BYTES)
        own_pid, rank = read_rank(fd, pid, look)
        if own_pid not in pids_inside(proc, pid):
            return None  # a descriptor that a child has kept
        if ask_s:
            os.pwrite(fd, struct.pack("=q", now_ns() + int(ask_s * 1e9)), WISH_AT)
        return rank
    except TooMuch:
        look.n_large += 1
        return None
    except (OSError, Malformed, ValueError, MemoryError):
        return None
    finally:
        os.close(fd)


def find_files(proc, look=None):
    """The path of each, and its process, the smallest first: then a large one keeps out no other. What @look does not believe
    costs it nothing."""
    files = []
    for entry in os.listdir(proc):
        if not entry.isdecimal():
            continue
        directory = f"{proc}/{entry}/fd"
        try:
            fds = os.listdir(directory)
        except OSError:
            continue
        for fd in fds:
            path = f"{directory}/{fd}"
            try:
                if os.readlink(path) != LINK:
                    continue
                info = os.stat(path)
                if not stat.S_ISREG(info.st_mode):
                    continue
                if look and not look.believes(info.st_uid):
                    look.n_foreign += 1
                else:
                    files.append((info.st_size, path, int(entry)))
            except OSError:
                continue
    return [file[1:] for file in sorted(files)]


def find_ranks(ask_s=0, proc="/proc", steady=True, look=None):
    """All ranks of processes that this user may look into. Not @steady: those without figures as well."""
    look = look or Look()
    ranks = []
    for path, pid in find_files(proc, look):
        rank = look_at(path, pid, proc, ask_s, look)
        if rank and (rank.is_steady or not steady):
            ranks.append(rank)
    return sorted(ranks, key=lambda r: (r.job, r.world_rank, r.life, r.began_ns))


def is_of_later_run(rank, gone):
    """@rank has not come for a place in the run of @gone, but begun another one of that name."""
    return rank.number != gone.number and rank.life <= 1 and rank.began_ns > gone.seen_ns


def views_of(gone, living):
    """What ranks of its job that live say of it."""
    return [peer for rank in living if rank.number == gone.number
            for peer in rank.peers if peer.world_rank == gone.world_rank]


class Watch:
    """Looks again and again, and remembers ranks whose processes have ended while others of their job live. Without which
    the job goes on, by a commit, is not missing any more. When none lives any more the job has ended, and who is
    remembered for a while is who had been missed before."""

    def __init__(self, ask_s, keep_s=300, most_bytes=None, owners=None):
        """@most_bytes and @owners: of each look, as of Look."""
        self.ask_s, self.keep_ns = ask_s, int(keep_s * 1e9)
        self.most_bytes, self.owners = most_bytes, owners
        self.last = Look()  # what it has left out
        self.known = {}  # lists of Rank by key

    def find_living(self, now):
        """By key, the last one last. Several have one place if jobs with one name run at once."""
        places = {}
        last = {rank.process: rank for ranks in self.known.values() for rank in ranks}
        self.last = Look(self.most_bytes, self.owners)
        for rank in find_ranks(self.ask_s, steady=False, look=self.last):
            rank = rank if rank.is_steady else last.get(rank.process)  # figures of the look before
            if rank:
                places.setdefault(rank.key, []).append(dataclasses.replace(rank, seen_ns=now, gone_ns=0))
        for ranks in places.values():
            ranks.sort(key=lambda rank: (rank.life, rank.began_ns))
        # Whose place another process of the job has taken is not of it any more.
        return {key: [rank for rank in ranks
                      if not any(other.number == rank.number and other.life > rank.life for other in ranks)]
                for key, ranks in places.items()}

    def look(self):
        """Ranks in order: those of one place after each other."""
        now = now_ns()
        places = self.find_living(now)
        jobs = {}
        for (job, _), ranks in places.items():
            jobs.setdefault(job, []).extend(ranks)
        for key, ranks in self.known.items():
            if key in places:
                continue
            gone = dataclasses.replace(ranks[-1], gone_ns=ranks[-1].gone_ns or now)
            living = jobs.get(gone.job)
            if not living:
                if gone.was_missed and now - gone.gone_ns < self.keep_ns:
                    places[key] = [gone]
                continue
            views = views_of(gone, living)
            # The job goes on without it, or another process, on another node, has its place.
            is_replaced = views and all(peer.out or peer.lives > gone.life for peer in views)
            if is_replaced or all(is_of_later_run(rank, gone) for rank in living):
                continue
            gone.was_missed |= any(peer.lost and not peer.out and peer.reason not in ORDERLY for peer in views)
            places[key] = [gone]
        self.known = places
        return [rank for key in sorted(places) for rank in places[key]]
