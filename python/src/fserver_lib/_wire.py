# SPDX-License-Identifier: Apache-2.0
"""What one message is: a head, a record for each tensor, and the tensors, each at a multiple of 256
bytes. Requests name their pulls behind their pushes, by records without data."""

from __future__ import annotations

import ctypes
import struct
from typing import List, NamedTuple, Sequence, Tuple

import stepaf

from . import _tensors
from ._errors import error
from ._tensors import DTYPES, MAX_DIMS, Memory

_HEAD = struct.Struct("<IHHQ")
_RECORD = struct.Struct(f"<QQBBB5x{MAX_DIMS}Q")
_MAGIC = 0x31534641
_ALIGN = 256
MAX_TENSORS = 4000


class Record(NamedTuple):
    """A tensor of a message."""

    key: int
    offset: int
    nbytes: int
    dtype: str
    shape: Tuple[int, ...]
    is_cuda: bool


def _pad(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


def _record(key: int, memory: Memory) -> bytes:
    dims = memory.shape + (0,) * (MAX_DIMS - len(memory.shape))
    return _RECORD.pack(key & (1 << 64) - 1, memory.nbytes, DTYPES.index(memory.dtype),
                        len(memory.shape), memory.is_cuda, *dims)


def write(address: int, capacity: int, sequence: int, sent: Sequence[Tuple[int, Memory]],
          wanted: Sequence[Tuple[int, Memory]] = ()) -> int:
    """Write a message; returns its bytes. Raises SizeError, with nothing written."""
    head = _HEAD.pack(_MAGIC, len(sent), len(wanted), sequence)
    head += b"".join(_record(*each) for each in (*sent, *wanted))
    end = _pad(len(head))
    places = []
    for _, memory in sent:
        places.append(end)
        end = _pad(end + memory.nbytes)
    if end > capacity:
        raise error(stepaf.SizeError, f"an operation of {end} bytes, which is more than "
                    f"FSERVER_LIB_BYTES={capacity}")
    ctypes.memmove(address, head, len(head))
    for place, (_, memory) in zip(places, sent):
        _tensors.copy_out(memory, address + place)
    return end


def read(address: int, nbytes: int) -> Tuple[int, List[Record], List[Record]]:
    """Sequence, sent tensors and wanted ones of a message. Nothing in it is trusted."""
    if nbytes < _HEAD.size:
        raise error(stepaf.ProtocolError, f"a message of {nbytes} bytes")
    magic, n_sent, n_wanted, sequence = _HEAD.unpack(ctypes.string_at(address, _HEAD.size))
    end = _HEAD.size + (n_sent + n_wanted) * _RECORD.size
    if magic != _MAGIC or end > nbytes:
        raise error(stepaf.ProtocolError, "a message that fserver_lib has not sent")
    raw = ctypes.string_at(address, end)
    records = []
    place = _pad(end)
    for i in range(n_sent + n_wanted):
        key, size, number, n_dims, on_gpu, *dims = _RECORD.unpack_from(raw, _HEAD.size + i * _RECORD.size)
        if number >= len(DTYPES) or n_dims > MAX_DIMS:
            raise error(stepaf.ProtocolError, "a tensor of an unknown type")
        shape = tuple(dims[:n_dims])
        here = i < n_sent
        if _tensors.size_of(DTYPES[number], shape) != size or here and place + size > nbytes:
            raise error(stepaf.ProtocolError, f"a tensor of {size} bytes that cannot be")
        records.append(Record(key, place if here else 0, size, DTYPES[number], shape, bool(on_gpu)))
        place = _pad(place + size) if here else place
    return sequence, records[:n_sent], records[n_sent:]
