# SPDX-License-Identifier: Apache-2.0
"""fserver_lib as programs for StepMesh use it: its latency benchmark, and SGLang's dispatcher."""

import importlib.util
import unittest

import job
from fserver_job import TestCase, floats, values

N = 64


def latency(workers, servers, layers):
    """Two pushes and a pull of each server, three microbatches one after another."""
    def worker(f, rank):
        f.init()
        pushes = [[floats(N, mb + rank), floats(1, mb)] for mb in range(3)]
        push_keys = [[i + mb * 256 + rank * 65536 for i in range(2)] for mb in range(3)]
        pulls = [[floats(N) for _ in range(servers)] for _ in range(3)]
        # As many keys as there are microbatches so far, as the benchmark has them.
        pull_keys = [[i + mb * 256 + (1 << 24) for i in range(mb + 1)] for mb in range(3)]
        f.barrier(True, True)
        for layer in range(layers):
            mb = layer % 3
            pushes[mb][0][0] = layer
            handle = f.push_pull(pushes[mb], push_keys[mb], pulls[mb], pull_keys[mb])
            handlers = f.get_all_handlers(handle)
            f.wait(handle)
            assert [pull[0] for pull in pulls[mb]] == [layer * 10 + s + 100 * rank for s in range(servers)]
            costs = [f.fetch_trace(each) for each in handlers]
            assert len(costs) == 2 + servers and all(cost == sorted(cost) for cost in costs)
        f.stop()

    def server(f, rank):
        f.init()
        answers = floats(N)
        f.barrier(True, True)
        for _ in range(layers):
            batches = []
            while not batches:
                batches = f.get_batch()
            assert len(batches) == workers
            for worker_rank, (comm_id, tensors, keys) in enumerate(batches):
                assert keys[0] >> 16 == worker_rank and values(tensors[1])[0] == keys[0] >> 8 & 255
                answers[0] = values(tensors[0])[0] * 10 + rank + 100 * worker_rank
                f.respond([answers], comm_id)
        f.stop()

    return worker, server


def dispatcher(layers, stages, tokens):
    """hidden, weights, ids and logits to the FFN; the answer is cloned. One step has no tokens."""
    def rows(layer, stage):
        return 0 if (layer, stage) == (1, 1) else tokens

    def attention(f, rank):
        import torch
        f.init()
        started = []
        for layer in range(layers):
            for stage in range(stages):
                n = rows(layer, stage)
                hidden = torch.full((n, 32), layer + stage, dtype=torch.bfloat16)
                push = [hidden, torch.full((n, 2), 0.5), torch.ones((n, 2), dtype=torch.int64),
                        torch.zeros((4, n), dtype=torch.float16).t()]  # not contiguous
                pull = torch.zeros_like(hidden)
                key = 10 * stage
                handle = f.push_pull(push, [key, key + 1, key + 2, key + 3], [pull], [key + 4])
                started.append((layer, stage, handle, pull))
            while started:
                at, stage, handle, pull = started.pop(0)
                f.wait(handle)
                assert torch.equal(pull.clone(), torch.full((rows(at, stage), 32), at + stage + 1.0,
                                                            dtype=torch.bfloat16)), pull
        f.stop()

    def ffn(f, rank):
        import torch
        f.init()
        for layer in range(layers):
            held = [f.get_batch() for _ in range(stages)]  # all, before the first is answered
            for stage, ((comm_id, tensors, keys),) in enumerate(held):
                hidden, weights, ids, logits = tensors
                n = rows(layer, stage)
                assert [each.shape[0] for each in tensors] == [n] * 4 and keys[0] == 10 * stage
                assert [each.dtype for each in tensors] == [torch.bfloat16, torch.float32, torch.int64,
                                                            torch.float16]
                assert tuple(logits.shape) == (n, 4) and bool((ids == 1).all())
                f.respond([hidden + 2 * weights[:, :1].to(hidden.dtype)], comm_id, True)
        f.stop()

    return attention, ffn


class Programs(TestCase):
    def test_latency_benchmark(self):
        self.run_fserver(*latency(2, 3, job.few(60, 12)), workers=2, servers=3)

    def test_latency_benchmark_of_groups(self):
        worker, server = latency(2, 1, 6)
        self.run_fserver(worker, server, workers=2, servers=1)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_sglang_dispatcher(self):
        self.run_fserver(*dispatcher(3, 3, 8))


if __name__ == "__main__":
    job.main()
