# SPDX-License-Identifier: Apache-2.0
"""The server's side: batches that are held until they are answered."""

from __future__ import annotations

import collections
import threading
import time
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import stepaf

from . import _tensors, _wire
from ._errors import error
from ._wire import Record


class _Held(NamedTuple):
    batch: Optional[stepaf.Batch]
    """None of a batch without pulls, which is answered when it comes."""
    sequence: int
    wanted: List[Record]


class Server:
    """An FFN rank. Received tensors lie in the batch's memory; answers are copied into memory of a
    pool."""

    def __init__(self, context: stepaf.Context, capacity: int, depth: int, gpu: Optional[int],
                 same_rows: bool) -> None:
        self.context = context
        self.capacity = capacity
        self.gpu = gpu
        self.same_rows = same_rows
        self.limit = depth * context.n_attention + 1
        self.lock = threading.Lock()
        self.receiving = threading.Lock()
        self.next = 1
        self.held: Dict[int, _Held] = {}
        self.answering: Set[int] = set()
        self.requests: Dict[int, stepaf.Request] = {}
        self.free: List[stepaf.Tensor] = []
        self.busy: Deque[Tuple[int, stepaf.Request, stepaf.Tensor]] = collections.deque()
        self.made = 0
        self.places: Dict[Tuple[int, int], Any] = {}

    def register(self, tensor: Any, ranks: Sequence[int], keys: Sequence[int]) -> None:
        """Slice i of a tensor is where key i of worker i is received."""
        if len(ranks) != len(keys) or not keys:
            raise error(stepaf.InvalidError, f"{len(ranks)} worker ranks and {len(keys)} keys")
        memory = _tensors.read(tensor, False)
        if memory.nbytes % len(keys):
            raise error(stepaf.SizeError, f"{memory.nbytes} bytes are not {len(keys)} equal slices")
        for rank in ranks:
            if not 0 <= rank < self.context.n_attention:
                raise error(stepaf.InvalidError, f"no worker has the rank {rank}")
        each = memory.nbytes // len(keys)
        with self.lock:
            for i, place in enumerate(zip(ranks, keys)):
                self.places[place] = (memory, i * each, each)

    def get_batch(self, timeout: Optional[float]) -> List[Tuple[int, List[Any], List[int]]]:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.receiving:
            while True:
                left = 1.0 if deadline is None else min(1.0, max(deadline - time.monotonic(), 0))
                try:
                    batches = self.context.recv_each(left)
                    break
                except stepaf.TimeoutError:
                    if deadline is not None and time.monotonic() >= deadline:
                        raise
        made: List[Tuple[int, List[Any], List[int]]] = []
        try:
            for batch in batches:
                if batch is not None:
                    made.append(self._hold(batch))
        except BaseException:  # none of them is known to the caller: their workers are told
            with self.lock:
                for handle, _, _ in made:
                    self.held.pop(handle, None)
            for batch in batches:
                if batch is not None:
                    batch.release()
            raise
        return made

    def _hold(self, batch: stepaf.Batch) -> Tuple[int, List[Any], List[int]]:
        message = batch[0]
        sequence, records, wanted = _wire.read(message.data_ptr(), message.nbytes)
        peers = self.context.n_ffn
        if len(wanted) % peers:
            raise error(stepaf.ProtocolError, f"{len(wanted)} pulls from {peers} servers")
        each = len(wanted) // peers
        mine = wanted[self.context.rank * each:(self.context.rank + 1) * each]
        tensors = [self._arrived(message, batch.attention_rank, record) for record in records]
        with self.lock:
            handle = self.next
            self.next += 1
        if not mine:
            self._answer(handle, batch, sequence, [], False)
        with self.lock:
            self.held[handle] = _Held(batch if mine else None, sequence, mine)
            if not mine and len(self.held) > 4 * self.limit:  # those that nobody will respond to
                for old in [old for old, held in self.held.items() if held.batch is None][:-self.limit]:
                    del self.held[old]
        return handle, tensors, [record.key for record in records]

    def _arrived(self, message: stepaf.Tensor, rank: int, record: Record) -> Any:
        data = message[record.offset:record.offset + record.nbytes]
        place = self.places.get((rank, record.key))
        if place is None:
            return _tensors.arrived(data, record.dtype, record.shape, record.is_cuda, self.gpu)
        memory, offset, room = place
        if record.nbytes > room:
            raise error(stepaf.SizeError, f"key {record.key} of worker {rank} has {record.nbytes} bytes, "
                        f"its slice of the registered buffer {room}")
        return _tensors.into_slice(memory, offset, data, record.dtype, record.shape)

    def _slab(self) -> stepaf.Tensor:
        """Memory for an answer, of those that have been sent."""
        with self.lock:
            for _ in range(len(self.busy)):
                handle, request, slab = self.busy.popleft()
                try:
                    done = request.test()
                except stepaf.StepafError:
                    done = True  # the peer is lost: get_batch says so
                if done:
                    self.requests.pop(handle, None)
                    self.free.append(slab)
                else:
                    self.busy.append((handle, request, slab))
            if self.free:
                return self.free.pop()
            if self.made < self.limit:
                slab = self.context.alloc(self.capacity)
                self.made += 1
                return slab
            if not self.busy:
                raise error(stepaf.StateError, f"{self.limit} answers are being made")
            oldest = self.busy.popleft()
        handle, request, slab = oldest
        try:
            request.wait()
        except stepaf.TimeoutError:
            with self.lock:
                self.busy.appendleft(oldest)
            raise
        except stepaf.StepafError:
            pass
        with self.lock:
            self.requests.pop(handle, None)
        return slab

    def _answer(self, handle: int, batch: stepaf.Batch, sequence: int,
                sent: List[Tuple[int, _tensors.Memory]], release: bool) -> None:
        """Without the lock: it copies, and may wait for memory."""
        slab = self._slab()
        try:
            size = _wire.write(slab.data_ptr(), self.capacity, sequence, sent)
            request = batch.respond([slab[:size]], release=release)
        except BaseException:
            with self.lock:
                self.free.append(slab)
            raise
        with self.lock:
            self.busy.append((handle, request, slab))
            self.requests[handle] = request

    def respond(self, tensors: Sequence[Any], handle: int) -> None:
        with self.lock:
            held = self.held.pop(handle, None)
            if held is not None:
                self.answering.add(handle)
        if held is None:
            raise error(stepaf.HandleError, f"get_batch has not returned {handle}, or it is answered")
        try:
            if len(tensors) != len(held.wanted):
                raise error(stepaf.PullsError, f"{len(tensors)} tensors for {len(held.wanted)} pulls")
            sent = []
            for record, tensor in zip(held.wanted, tensors):
                memory = _tensors.read(tensor, True)
                if memory.nbytes > record.nbytes:
                    raise error(stepaf.SizeError, f"{memory.nbytes} bytes for key {record.key}, whose "
                                f"tensor has {record.nbytes}")
                sent.append((record.key, memory))
            if held.batch is not None:
                self._answer(handle, held.batch, held.sequence, sent, True)
        except BaseException:  # it can still be answered
            with self.lock:
                self.held[handle] = held
            raise
        finally:
            with self.lock:
                self.answering.discard(handle)

    def respond_vec(self, buffer: Any, tensors: Sequence[Any], handles: Sequence[int]) -> None:
        if len(tensors) != len(handles):
            raise error(stepaf.InvalidError, f"{len(tensors)} tensors and {len(handles)} handlers")
        source = buffer if _tensors.is_torch(buffer) else stepaf.as_tensor(buffer)
        counts = [int(tensor.shape[0]) for tensor in tensors]
        needed = max(counts, default=0) if self.same_rows else sum(counts)
        if needed > source.shape[0]:
            raise error(stepaf.SizeError, f"{needed} rows of a buffer of {source.shape[0]}")
        row = 0
        for count, handle in zip(counts, handles):
            self.respond([source[row:row + count]], handle)
            row += 0 if self.same_rows else count

    def sent(self, handle: int) -> bool:
        with self.lock:
            held = self.held.get(handle)
            if held is not None and held.batch is not None or handle in self.answering:
                return False
            request = self.requests.get(handle)
            if request is None:
                if not 0 < handle < self.next:
                    raise error(stepaf.HandleError, f"get_batch has not returned {handle}")
                return True
            return request.test()
