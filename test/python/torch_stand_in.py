# SPDX-License-Identifier: Apache-2.0
"""A stand-in for torch: what stepaf.torch calls, on tensors of f32 in lists. What touches a tensor on "cuda" is
enqueued on one stream, and done when the stream is synchronized: whoever looks earlier sees old data."""

import itertools
import math
import sys
import types

_addresses = itertools.count(1 << 20, 1 << 16)
_enqueued = []


def synchronize():
    while _enqueued:
        _enqueued.pop(0)()


class _Storage:
    def __init__(self, n, device):
        self.address, self.device, self.cells = next(_addresses), device, [0.0] * n


def _dense(shape):
    return tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))


class Tensor:
    """A strided view of a storage."""

    dtype = "f32"

    def __init__(self, shape, device="cpu", storage=None, offset=0, strides=None):
        self.shape = tuple(shape)
        self._storage = storage or _Storage(math.prod(shape), device)
        self._offset, self._strides = offset, _dense(self.shape) if strides is None else strides

    device = property(lambda self: self._storage.device)
    is_cuda = property(lambda self: self._storage.device != "cpu")

    def _places(self):
        for index in itertools.product(*map(range, self.shape)):
            yield self._offset + sum(i * stride for i, stride in zip(index, self._strides))

    def flat(self):
        """The elements as they are now."""
        return [self._storage.cells[place] for place in self._places()]

    def data_ptr(self):
        return self._storage.address + 4 * self._offset

    def is_contiguous(self):
        return self._strides == _dense(self.shape)

    def stride(self):
        return self._strides

    def dim(self):
        return len(self.shape)

    def numel(self):
        return math.prod(self.shape)

    def element_size(self):
        return 4

    def t(self):
        return Tensor(self.shape[::-1], None, self._storage, self._offset, self._strides[::-1])

    def __getitem__(self, key):
        shape, offset = list(self.shape), self._offset
        for i, part in enumerate(key if isinstance(key, tuple) else (key,)):
            begin, end, _ = part.indices(shape[i])
            shape[i], offset = end - begin, offset + begin * self._strides[i]
        return Tensor(shape, None, self._storage, offset, self._strides)

    def _do(self, source, action):
        if self.is_cuda or source.is_cuda:
            _enqueued.append(action)
        else:
            action()
        return self

    def copy_(self, source):
        """As torch's, which refuses memory that overlaps; without its broadcasts."""
        if self.shape != source.shape:
            raise RuntimeError(f"{source.shape} into {self.shape}")
        same = list(self._places()) == list(source._places())
        if source._storage is self._storage and not same and {*self._places()} & {*source._places()}:
            raise RuntimeError("the memory overlaps")

        def copy():
            for place, value in zip(self._places(), source.flat()):
                self._storage.cells[place] = value

        return self._do(source, copy)

    def fill(self, values):
        """Elements in row order, by work on the stream if the tensor is there."""
        made = Tensor(self.shape)
        made._storage.cells = [float(value) for value in values]
        return self.copy_(made)

    def clone(self):
        return Tensor(self.shape, self.device).copy_(self)


class _Library:
    def __init__(self, name, kind):
        pass

    def define(self, schema):
        pass

    def impl(self, name, function, key):
        pass


def install():
    """Be torch, from now on."""
    torch = types.ModuleType("torch")
    torch.Tensor, torch.dtype = Tensor, str
    for name in ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"):
        setattr(torch, name, name)
    torch.from_dlpack = lambda tensor: tensor
    torch.library = types.SimpleNamespace(Library=_Library, register_fake=lambda *args, **named: None)
    torch.cuda = types.SimpleNamespace(
        current_stream=lambda device=None: types.SimpleNamespace(synchronize=synchronize))
    sys.modules["torch"] = torch
