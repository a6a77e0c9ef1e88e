#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch's caching allocator, pushed and pulled on its current stream.

Two ranks under mpirun: mpirun -n 2 python3 pytorch.py [DIRECTORY]. DIRECTORY, or STEPAF_LIBDIR in the
environment, holds libstepaf_mpi.so. Rank 0 is the attention rank. Data is made and compared by
PyTorch, on the GPU. Exit code 77, with a reason, where there is no PyTorch or no GPU.
"""
import ctypes as c
import os
import sys

OK, ATTENTION, FFN, ROLE_AUTO = 0, 0, 1, 2
PUSH, PULL, MEM_CUDA, PLAN_STREAM = 0, 1, 1, 2
KEY_DEPTH, KEY_MEM_KIND = 4, 8
PARAM_SPLIT = 8
MAX_DIMS = 8
DEPTH, EAGER, REPLAYS = 2, 40, 200


class Tensor(c.Structure):
    _fields_ = [("key", c.c_uint64), ("data", c.c_void_p), ("bytes", c.c_size_t)]


class Params(c.Structure):
    _fields_ = [("field_mask", c.c_uint64), ("role", c.c_int), ("progress", c.c_int),
                ("threads", c.c_int), ("split", c.c_char_p)]


class KeyParams(c.Structure):
    _fields_ = [("field_mask", c.c_uint64), ("dtype", c.c_int), ("ndim", c.c_int),
                ("shape", c.c_int64 * MAX_DIMS), ("depth", c.c_uint), ("mem_kind", c.c_int)]


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("phase", c.c_int), ("peer_role", c.c_int),
                ("peer_rank", c.c_int), ("peer_world_rank", c.c_int), ("text", c.c_char * 320)]


def skip(reason):
    print("SKIP:", reason)
    sys.exit(77)


class Stepaf:
    """The library, and a context on MPI."""

    def __init__(self, directory):
        def path(name):
            return os.path.join(directory, name) if directory else name

        self.lib = c.CDLL(path("libstepaf.so"), mode=c.RTLD_GLOBAL)
        mpi = c.CDLL(path("libstepaf_mpi.so"), mode=c.RTLD_GLOBAL)
        # The MPI library came with it.
        assert mpi.MPI_Init(None, None) == 0
        self.mpi = mpi
        self.lib.stepaf_last_error.restype = c.POINTER(Error)
        self.ctx = c.c_void_p()
        params = Params(field_mask=PARAM_SPLIT, split=b"attn=1,ffn=1")
        self.call("stepaf_init", None, c.byref(params), c.byref(self.ctx))
        self.role = self.lib.stepaf_role(self.ctx)

    def call(self, name, *arguments):
        status = getattr(self.lib, name)(*arguments)
        if status != OK:
            text = self.lib.stepaf_last_error().contents.text.decode()
            raise RuntimeError("%s: %d: %s" % (name, status, text))

    def close(self):
        self.call("stepaf_barrier", self.ctx, 0, c.c_int64(-1))
        self.lib.stepaf_finalize(self.ctx)
        self.mpi.MPI_Finalize()


class Plan:
    """A plan with one tensor each way: this rank's sources and what comes to it."""

    def __init__(self, library, torch, number, push_bytes, pull_bytes):
        self.library, self.torch = library, torch
        self.attention = library.role == ATTENTION
        push_key, pull_key = 100 + number, 200 + number
        self.declare(push_key, PUSH, push_bytes)
        self.declare(pull_key, PULL, pull_bytes)
        self.out_bytes = push_bytes if self.attention else pull_bytes
        self.in_bytes = pull_bytes if self.attention else push_bytes
        self.out_slots = 1 if self.attention else DEPTH
        self.out = self.memory(self.out_bytes * self.out_slots)
        self.come = self.memory(self.in_bytes * DEPTH)
        self.handle = c.c_void_p()
        if self.attention:
            push = Tensor(push_key, self.out.data_ptr(), push_bytes)
            pull = Tensor(pull_key, self.come.data_ptr(), pull_bytes)
            library.call("stepaf_plan_create", library.ctx, c.byref(push), 1, c.byref(pull), 1,
                         c.c_uint32(PLAN_STREAM), c.byref(self.handle))
        else:
            library.call("stepaf_key_set_recv", library.ctx, c.c_uint64(push_key),
                         c.c_void_p(self.come.data_ptr()), c.c_size_t(self.come.numel()), None, 0)
            keys = (c.c_uint64 * 1)(push_key)
            answer = Tensor(pull_key, self.out.data_ptr(), pull_bytes)
            library.call("stepaf_plan_create_ffn", library.ctx, keys, 1, c.byref(answer), 1,
                         c.c_uint32(PLAN_STREAM), c.byref(self.handle))
        # Counted on the GPU, so that each replay of a graph has other bytes.
        self.sent = torch.zeros((), dtype=torch.int64, device="cuda")
        self.seen = torch.zeros((), dtype=torch.int64, device="cuda")
        self.wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        self.out_index = torch.arange(self.out_bytes, device="cuda")
        self.in_index = torch.arange(self.in_bytes, device="cuda")
        self.n_sent = self.n_seen = 0

    def declare(self, key, direction, n_bytes):
        params = KeyParams(field_mask=KEY_DEPTH | KEY_MEM_KIND, depth=DEPTH, mem_kind=MEM_CUDA)
        self.library.call("stepaf_key_declare", self.library.ctx, c.c_uint64(key), direction,
                          c.c_size_t(n_bytes), c.byref(params))

    def memory(self, n_bytes):
        """From the caching allocator: often a part of a larger block of its."""
        tensor = self.torch.full((n_bytes,), 7, dtype=self.torch.uint8, device="cuda")
        self.library.call("stepaf_register", self.library.ctx, c.c_void_p(tensor.data_ptr()),
                          c.c_size_t(n_bytes))
        return tensor

    def expected(self, index, count, outgoing):
        from_attention = self.attention == outgoing
        return ((index * 31 + count * 17 + (5 if from_attention else 11)) % 251).to(
            self.torch.uint8)

    def stream(self):
        return c.c_void_p(self.torch.cuda.current_stream().cuda_stream)

    def fill(self):
        slot = self.n_sent % self.out_slots
        part = self.out[slot * self.out_bytes:(slot + 1) * self.out_bytes]
        part.copy_(self.expected(self.out_index, self.sent, True))
        self.sent += 1
        self.n_sent += 1

    def check(self):
        slot = self.n_seen % DEPTH
        part = self.come[slot * self.in_bytes:(slot + 1) * self.in_bytes]
        self.wrong += (part != self.expected(self.in_index, self.seen, False)).sum()
        part.fill_(255)
        self.seen += 1
        self.n_seen += 1

    def exchange(self):
        """One operation on the current stream."""
        library, stream = self.library, self.stream()
        if self.attention:
            self.fill()
            library.call("stepaf_start_on_stream", self.handle, None, stream, None)
            library.call("stepaf_wait_on_stream", self.handle, stream)
            self.check()
        else:
            library.call("stepaf_recv_on_stream", self.handle, stream)
            self.check()
            self.fill()
            library.call("stepaf_respond_on_stream", self.handle, None, stream)

    def verify(self, operations):
        self.library.call("stepaf_plan_status", self.handle)
        wrong, seen = int(self.wrong), int(self.seen)
        assert wrong == 0, "%d wrong bytes in %d operations" % (wrong, seen)
        assert seen == operations, "%d operations, should be %d" % (seen, operations)


def capture(torch, plans, stream):
    """Warm up as PyTorch asks for, then capture DEPTH operations of each plan."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for plan in plans:
            for _ in range(DEPTH):
                plan.exchange()
    return graph


def run(torch, library):
    plans = [Plan(library, torch, 0, 917504, 1835008), Plan(library, torch, 1, 100, 4097),
             Plan(library, torch, 2, 3 << 20, 5 << 20)]
    library.call("stepaf_commit", library.ctx)
    torch.cuda.synchronize()
    library.call("stepaf_barrier", library.ctx, 0, c.c_int64(-1))
    stream = torch.cuda.Stream()
    for which in (stream, torch.cuda.default_stream()):
        torch.cuda.synchronize()
        with torch.cuda.stream(which):
            for _ in range(EAGER):
                for plan in plans:
                    plan.exchange()
        torch.cuda.synchronize()
    graph = capture(torch, plans, stream)
    with torch.cuda.stream(stream):
        for _ in range(REPLAYS):
            graph.replay()
        for plan in plans:
            for _ in range(DEPTH):
                plan.exchange()
    torch.cuda.synchronize()
    for plan in plans:
        plan.verify(2 * EAGER + DEPTH * (REPLAYS + 1))
    segments = {s.get("is_expandable", False) for s in torch.cuda.memory_snapshot()}
    print("rank %d: no wrong byte; segments expandable: %s" % (library.role, segments))


def main():
    try:
        import torch
    except ImportError as error:
        skip("no PyTorch: %s" % error)
    if not torch.cuda.is_available():
        skip("PyTorch finds no GPU")
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
    torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.cuda.init()
    library = Stepaf(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("STEPAF_LIBDIR"))
    run(torch, library)
    library.close()


if __name__ == "__main__":
    main()
