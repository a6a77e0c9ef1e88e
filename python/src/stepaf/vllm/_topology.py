# SPDX-License-Identifier: Apache-2.0
"""Which ranks of the plugin's roles exchange rows, and which ranks of the library they are.

The synchronous connector parts the job into as many groups as the smaller role has ranks. Each has one
rank of that role and consecutive ranks of the other; the first groups have one more where the numbers
do not divide. Groups are the library's lanes. The asynchronous connector has a full mesh.
"""

from __future__ import annotations

from typing import List, NamedTuple, Tuple


def _place(rank: int, size: int, groups: int) -> Tuple[int, int]:
    """The group of a rank, and its place in that."""
    small, larger = divmod(size, groups)
    if rank < larger * (small + 1):
        return divmod(rank, small + 1)
    group, place = divmod(rank - larger * (small + 1), small)
    return larger + group, place


class Topology(NamedTuple):
    """Where one rank is in the job."""

    is_ffn: bool
    role_rank: int
    attention: int
    ffn: int
    full: bool

    @property
    def lanes(self) -> int:
        return 1 if self.full else min(self.attention, self.ffn)

    @property
    def size(self) -> int:
        return self.ffn if self.is_ffn else self.attention

    def library_rank(self) -> int:
        """The rank within the role, as the library counts: lanes take ranks in turn."""
        group, place = _place(self.role_rank, self.size, self.lanes)
        return place * self.lanes + group

    def world_rank(self) -> int:
        """FFN ranks come first: all ranks meet at FFN rank 0."""
        return self.library_rank() + (0 if self.is_ffn else self.ffn)

    def peers(self) -> List[int]:
        """The role ranks of the peers, in the library's order."""
        group, _ = _place(self.role_rank, self.size, self.lanes)
        others = self.attention if self.is_ffn else self.ffn
        return [rank for rank in range(others) if _place(rank, others, self.lanes)[0] == group]

    @property
    def is_first(self) -> bool:
        """Whether the rank speaks for its group."""
        return _place(self.role_rank, self.size, self.lanes)[1] == 0


def parts(rows: int, count: int) -> List[Tuple[int, int, int]]:
    """Rows that each of count FFN ranks gets of one attention rank: (from, to, how many of them are
    its own). None is without a row: with fewer rows than ranks, some get one whose answer is not used."""
    made = []
    for i in range(count):
        begin, end = i * rows // count, (i + 1) * rows // count
        own = end - begin
        if not own:
            begin = min(begin, rows - 1)
            end = begin + 1
        made.append((begin, end, own))
    return made
