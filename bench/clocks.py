#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where a round trip of a stream plan goes: clocks.py ATTENTION FFN prints it from the two ranks' stamps.

clocks.sh makes the files: 64 operations, 8 marks, 1056 blocks, of 8 bytes each, the GPU's timer in nanoseconds or 0.
The two GPUs' timers need not agree: what goes from one to the other is shown as the mean of both ways.
"""
import array
import statistics
import sys

ROWS, MARKS, BLOCKS = 64, 8, 1056
SEND, SEND_ON, SENT, GATE, SEEN, GATE_END, UNPACK, UNPACKED = range(MARKS)


class Rank:
    """First and last stamp of each mark, operation by operation."""

    def __init__(self, path):
        stamps = array.array("Q")
        with open(path, "rb") as file:
            stamps.frombytes(file.read())
        if len(stamps) != ROWS * MARKS * BLOCKS:
            raise ValueError(f"{path} has {len(stamps)} stamps instead of {ROWS * MARKS * BLOCKS}")
        self.first, self.last = [], []
        for row in range(ROWS):
            blocks = [stamps[(row * MARKS + mark) * BLOCKS:][:BLOCKS] for mark in range(MARKS)]
            told = [[stamp for stamp in of if stamp] for of in blocks]
            self.first.append([min(of, default=0) for of in told])
            self.last.append([max(of, default=0) for of in told])
        self.unpacks = any(last[UNPACKED] for last in self.last)

    def taken(self, row):
        """When all of an operation is taken."""
        return self.last[row][UNPACKED if self.unpacks else GATE_END]


def pairs(attention):
    """Operations with the one behind each. The oldest and the latest may be cut short."""
    order = sorted(range(ROWS), key=lambda row: attention.last[row][SEND_ON])
    order = [row for row in order if attention.last[row][SEND_ON]][1:-1]
    return [(row, after) for row, after in zip(order, order[1:])
            if 0 < attention.last[after][SEND_ON] - attention.last[row][SEND_ON] < 100000]


def table(attention, ffn):
    """Lines of a title and its times, in nanoseconds."""
    both = pairs(attention)
    rows = [row for row, _ in both]
    yield "round trip", [attention.last[after][SEND_ON] - attention.last[row][SEND_ON] for row, after in both]
    for name, rank in (("attention", attention), ("FFN", ffn)):
        one, all_ = rank.first, rank.last
        yield f"{name}: sending kernel there, until its wait has ended", [
            one[r][SEND_ON] - one[r][SEND] for r in rows]
        yield f"{name}: wait has ended, first block through", [one[r][SENT] - one[r][SEND_ON] for r in rows]
        yield f"{name}: wait has ended, last block through", [all_[r][SENT] - one[r][SEND_ON] for r in rows]
        yield f"{name}: gate looks, until the head is seen", [all_[r][SEEN] - all_[r][GATE] for r in rows]
        yield f"{name}: head seen, gate ends", [all_[r][GATE_END] - all_[r][SEEN] for r in rows]
        if rank.unpacks:
            yield f"{name}: head seen, first block unpacks", [one[r][UNPACK] - all_[r][SEEN] for r in rows]
            yield f"{name}: head seen, last block unpacks", [all_[r][UNPACK] - all_[r][SEEN] for r in rows]
            yield f"{name}: head seen, first block through", [one[r][UNPACKED] - all_[r][SEEN] for r in rows]
            yield f"{name}: head seen, all taken", [all_[r][UNPACKED] - all_[r][SEEN] for r in rows]
    yield "FFN: all taken, its sending kernel goes on", [ffn.first[r][SEND_ON] - ffn.taken(r) for r in rows]
    yield "attention: all taken, the next sending kernel goes on", [
        attention.first[after][SEND_ON] - attention.taken(row) for row, after in both]
    yield "sending goes on, the other's gate sees the head (mean of both ways)", [
        (ffn.last[r][SEEN] - attention.first[r][SEND_ON] + attention.last[r][SEEN] - ffn.first[r][SEND_ON]) / 2
        for r in rows]
    yield "last block through, all taken (mean of both ways)", [
        (ffn.taken(r) - attention.last[r][SENT] + attention.taken(r) - ffn.last[r][SENT]) / 2 for r in rows]


def main():
    """The program; returns the exit code."""
    if len(sys.argv) != 3:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    try:
        attention, ffn = map(Rank, sys.argv[1:])
    except (OSError, ValueError) as error:
        print(f"clocks.py: {error}", file=sys.stderr)
        return 1
    how = ", with unpacking" if ffn.unpacks or attention.unpacks else ""
    print(f"{len(pairs(attention))} operations{how}; microseconds")
    print(f"{'':68}{'p50':>8}{'mean':>8}{'p90':>8}")
    for title, times in table(attention, ffn):
        if times:
            times.sort()
            print(f"{title:68}{statistics.median(times) / 1e3:8.2f}{statistics.fmean(times) / 1e3:8.2f}"
                  f"{times[int(0.9 * (len(times) - 1))] / 1e3:8.2f}")
    return 0 if pairs(attention) else 1


if __name__ == "__main__":
    sys.exit(main())
