# SPDX-License-Identifier: Apache-2.0
"""Weights of a Hugging Face directory, or random ones. Nothing in a file is trusted."""

import json
import math
import mmap
import os
import struct

import torch

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
MAX_HEADER = 100 << 20


class ModelError(ValueError):
    """A model directory that cannot be used, and why."""


def read_json(path):
    """The object in a JSON file."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path}: not an object")
    return found


def _count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class File:
    """One safetensors file: 8 bytes with the length of the header, the header as JSON, the data."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: {error}") from None
        size = len(self._map)
        length = struct.unpack_from("<Q", self._map)[0] if size >= 8 else MAX_HEADER + 1
        if length > min(MAX_HEADER, size - 8):
            raise ModelError(f"{path}: no safetensors header fits")
        try:
            self.header = json.loads(self._map[8:8 + length].decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path}: header: {error}") from None
        if not isinstance(self.header, dict):
            raise ModelError(f"{path}: the header is not an object")
        self._begin, self._bytes = 8 + length, size - 8 - length

    def read(self, name, shape):
        """A view of the tensor, which must have this shape."""
        entry = self.header.get(name)
        if not isinstance(entry, dict):
            raise ModelError(f"{self.path}: no tensor {name}")
        kind = entry.get("dtype")
        dtype = DTYPES.get(kind) if isinstance(kind, str) else None
        if dtype is None:
            raise ModelError(f"{self.path}: {name} is of type {kind!r}, not one of {', '.join(DTYPES)}")
        if entry.get("shape") != list(shape):
            raise ModelError(f"{self.path}: {name} has the shape {entry.get('shape')!r}, "
                             f"config.json implies {list(shape)}")
        where = entry.get("data_offsets")
        if not (isinstance(where, list) and len(where) == 2 and all(map(_count, where))
                and where[0] <= where[1] <= self._bytes):
            raise ModelError(f"{self.path}: {name} lies outside the file")
        count = math.prod(shape)
        if where[1] - where[0] != count * dtype.itemsize or count == 0:
            raise ModelError(f"{self.path}: {name} has {where[1] - where[0]} bytes")
        offset = self._begin + where[0]
        if offset % dtype.itemsize:  # the format asks for it of the whole header only
            raw = bytearray(self._map[offset:offset + count * dtype.itemsize])
            return torch.frombuffer(raw, dtype=dtype).view(shape)
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=offset).view(shape)


class Checkpoint:
    """The tensors of a directory. A shard of which nothing is read is not opened."""

    def __init__(self, directory, device, dtype):
        self._directory, self._device, self._dtype = directory, device, dtype
        self._files = {}
        self._index = None
        index = os.path.join(directory, "model.safetensors.index.json")
        if os.path.exists(index):
            self._index = read_json(index).get("weight_map")
            if not isinstance(self._index, dict):
                raise ModelError(f"{index}: no weight_map")

    def __call__(self, name, *shape):
        """A tensor, of this type and on this device."""
        shard = "model.safetensors"
        if self._index is not None:
            shard = self._index.get(name)
            if not isinstance(shard, str) or shard != os.path.basename(shard):
                raise ModelError(f"{self._directory}: no shard is named for {name}")
        if shard not in self._files:
            self._files[shard] = File(os.path.join(self._directory, shard))
        return self._files[shard].read(name, shape).to(self._device, self._dtype, copy=True)


class Random:
    """Tensors of any name: normally distributed, so that the numbers stay in range; norms are one."""

    def __init__(self, device, dtype, seed):
        self._device, self._dtype = device, dtype
        self._generator = torch.Generator(device).manual_seed(seed)

    def __call__(self, name, *shape):
        made = torch.empty(shape, device=self._device, dtype=self._dtype)
        if name.endswith("norm.weight"):
            return made.fill_(1)
        return made.normal_(0, shape[-1] ** -0.5, generator=self._generator)
