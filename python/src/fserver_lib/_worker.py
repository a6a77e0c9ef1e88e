# SPDX-License-Identifier: Apache-2.0
"""The worker's side: operations in a ring of slots."""

from __future__ import annotations

import collections
import threading
import time
from typing import Any, Deque, Dict, List, Optional, Sequence, Tuple

import stepaf

from . import _tensors, _wire
from ._errors import error
from ._tensors import Memory

PUSH_KEY, PULL_KEY = 1, 2
_STRIDE = 4096  # a handle is the operation's number times this, and a tensor's place
_KEPT = 1024    # operations whose traces are kept


class _Operation:
    def __init__(self, number: int, request: stepaf.Request, n_push: int,
                 pulls: List[Tuple[int, Memory]]) -> None:
        self.number = number
        self.request = request
        self.n_push = n_push
        self.n_tensors = n_push + len(pulls)
        self.pulls: List[Tuple[int, Memory]] = pulls
        self.lock = threading.Lock()
        self.done = False
        self.failure: Optional[Exception] = None
        self.traces: List[List[int]] = []


class Worker:
    """An attention rank. Tensors to push are copied into the slot's memory, answers are received in
    memory of the slot, and wait copies them into the caller's tensors."""

    def __init__(self, context: stepaf.Context, capacity: int, depth: int) -> None:
        self.context = context
        self.capacity = capacity
        self.depth = depth
        self.peers = context.n_peers
        self.slots = context.alloc((depth, capacity))
        self.answers = context.alloc((self.peers, depth * capacity))
        self.plan = context.plan({PUSH_KEY: self.slots[0]},
                                 [(PULL_KEY, self.answers[peer][:capacity]) for peer in range(self.peers)])
        self.sources = [self.slots[slot] for slot in range(depth)]
        self.addresses = [source.data_ptr() for source in self.sources]
        self.posting = threading.Lock()  # of push_pull, in order; held while it waits for a slot
        self.lock = threading.Lock()     # of ring, known and ended; nobody waits with it
        self.number = 0
        self.ring: Deque[_Operation] = collections.deque()
        self.known: Dict[int, _Operation] = {}
        self.ended: Deque[int] = collections.deque()

    def push_pull(self, push: Sequence[Any], push_keys: Sequence[int], pull: Sequence[Any],
                  pull_keys: Sequence[int]) -> int:
        if len(push_keys) != len(push):
            raise error(stepaf.InvalidError, f"{len(push)} push tensors and {len(push_keys)} keys")
        if pull and not pull_keys:
            raise error(stepaf.InvalidError, f"{len(pull)} pull tensors and no key")
        if len(pull) % self.peers:
            raise error(stepaf.PullsError, f"{len(pull)} pulls are not a multiple of {self.peers} servers")
        if len(push) + len(pull) > _wire.MAX_TENSORS:
            raise error(stepaf.LimitError, f"more than {_wire.MAX_TENSORS} tensors in one operation")
        sent = [(int(key), _tensors.read(each, True)) for key, each in zip(push_keys, push)]
        # StepMesh's benchmark gives fewer keys than pulls, or more; servers do not see them.
        wanted = [(int(pull_keys[i % len(pull_keys)]), _tensors.read(each, False))
                  for i, each in enumerate(pull)]
        with self.posting:
            while True:
                with self.lock:
                    oldest = self.ring[0] if len(self.ring) >= self.depth else None
                if oldest is None:
                    break
                self._finish(oldest, self.context.default_timeout)
            number = self.number + 1
            slot = self.number % self.depth
            size = _wire.write(self.addresses[slot], self.capacity, number, sent, wanted)
            request = self.plan.start([self.sources[slot][:size]], wait=True)
            self.number = number
            operation = _Operation(number, request, len(sent), wanted)
            with self.lock:
                self.ring.append(operation)
                self.known[number] = operation
        return number * _STRIDE

    def _find(self, handle: int) -> Tuple[_Operation, int]:
        number, place = divmod(int(handle), _STRIDE)
        operation = self.known.get(number)
        if operation is None or place > operation.n_tensors:
            raise error(stepaf.HandleError, f"push_pull has not returned {handle}, or {_KEPT} operations have "
                        "ended since")
        return operation, place

    def wait(self, handle: int, timeout: float) -> None:
        operation, _ = self._find(handle)
        if not operation.done:
            self._finish(operation, timeout)
        failure, operation.failure = operation.failure, None
        if failure is not None:
            raise failure

    def _finish(self, operation: _Operation, timeout: float) -> None:
        """Wait for an operation and copy its answers. Only a timeout is raised: other failures are kept
        for who waits for it."""
        if not operation.lock.acquire(timeout=timeout):
            raise error(stepaf.TimeoutError, "another thread waits for this operation, which has not completed")
        try:
            if operation.done:
                return
            try:
                operation.request.wait(timeout)
                self._take(operation)
            except stepaf.TimeoutError:
                raise
            except Exception as failure:  # also of torch, where it copies
                operation.failure = failure
            now = time.perf_counter_ns()
            operation.traces = [self._trace(operation, peer, now) for peer in range(self.peers)]
            operation.pulls = []
            operation.done = True
        finally:
            operation.lock.release()
        with self.lock:
            while self.ring and self.ring[0].done:
                self.ended.append(self.ring.popleft().number)
                if len(self.ended) > _KEPT:
                    del self.known[self.ended.popleft()]

    def _take(self, operation: _Operation) -> None:
        each = len(operation.pulls) // self.peers
        for peer in range(self.peers):
            message = operation.request.tensor(peer)
            if message is None or not message.nbytes:
                raise error(stepaf.ProtocolError, f"server {peer} has sent no answer")
            address = message.data_ptr()
            number, records, _ = _wire.read(address, message.nbytes)
            if number != operation.number or len(records) != each:
                raise error(stepaf.ProtocolError, f"server {peer} has answered something else")
            for record, (_, memory) in zip(records, operation.pulls[peer * each:(peer + 1) * each]):
                if record.nbytes > memory.nbytes:
                    raise error(stepaf.SizeError, f"server {peer} has answered {record.nbytes} bytes to "
                                f"a tensor of {memory.nbytes}")
                _tensors.copy_in(memory, address + record.offset, record.nbytes)

    def _trace(self, operation: _Operation, peer: int, now: int) -> List[int]:
        """On the clock of get_nanosecond. What happens between is placed by halving what is left of the
        time after the server's: no message carries a stamp."""
        try:
            line = operation.request.timeline(peer)
        except stepaf.StepafError:
            return [0] * 8
        start = line.start_ns + time.perf_counter_ns() - self.context.clock_ns()
        if line.notified_ns < 0 or line.answered_ns < 0:
            return [start] + [0] * 7
        # The server's clock counts its times; what is posted late seems to be shorter than these are.
        left = max(line.answered_ns - line.notified_ns, 0)
        queue = min(max(line.ffn_queue_ns, 0), left)
        work = min(max(line.ffn_work_ns, 0), left - queue)
        posted = start + line.notified_ns
        there = posted + (left - queue - work) // 2
        ready, back = there + queue + work, posted + left
        return [start, posted, there, there + queue, ready, ready, back, max(now, back)]

    def trace(self, handle: int) -> List[int]:
        operation, place = self._find(handle)
        if not operation.done:
            raise error(stepaf.StateError, "the operation has not been waited for")
        first_pull = operation.n_push + 1
        if place >= first_pull:
            each = (operation.n_tensors - operation.n_push) // self.peers
            return operation.traces[(place - first_pull) // each]
        return max(operation.traces, key=lambda trace: trace[6])

    def handlers(self, handle: int) -> List[int]:
        operation, _ = self._find(handle)
        return [operation.number * _STRIDE + place for place in range(1, operation.n_tensors + 1)]

    def sent(self, handle: int) -> bool:
        operation, _ = self._find(handle)
        return operation.done or operation.request.sent
