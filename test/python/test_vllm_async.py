# SPDX-License-Identifier: Apache-2.0
"""The asynchronous connector for vLLM's AFD plugin: work items that come from any attention rank, on the CPU
and on GPUs."""

import os
import threading
import time
import unittest

import job
import stepaf
from vllm_job import EXPERTS, HIDDEN, REASON, TOKENS, TOP_K, afd, by_turns, make, run, torch

if torch:
    import stepaf.vllm
    from stepaf.vllm import _select, _work

LAYERS, STEPS = 6, 3


def routing(rows, seed):
    """Ids and weights: exact in float32, and different for each row, layer, stage and rank."""
    ids = torch.stack([torch.tensor([(seed + row) % EXPERTS, (seed + row + 1) % EXPERTS]) for row in range(rows)])
    weights = torch.tensor([[0.5, 0.25 if (seed + row) % 2 else 0.125] for row in range(rows)])
    return ids, weights


def layer_of(x, ids, weights, layer):
    """What all FFN ranks together make of rows: expert e of layer l gives x + e + l."""
    parts = weights.to(x.device).unsqueeze(-1) * (x.unsqueeze(1) + ids.to(x.device).unsqueeze(-1) + layer)
    return parts.sum(1)


def compute(item):
    """An FFN rank's share."""
    state, x = item.context.states, item.hidden_states
    ids, weights = state.topk_ids, state.topk_weights
    own = (ids >= state.first_expert) & (ids < state.first_expert + state.n_experts)
    parts = (weights * own).unsqueeze(-1) * (x.unsqueeze(1) + ids.unsqueeze(-1) + item.layer_idx)
    return parts.sum(1)


def tables_of(rank, x):
    """What each layer of each stage has chosen, where x is."""
    return [[tuple(table.to(each.device) for table in routing(len(each), 7 * rank + 3 * stage + layer))
             for layer in range(LAYERS)] for stage, each in enumerate(x)]


def microbatches(connector, x, y, tables, stream=None):
    """A step of two microbatch threads, which yield to each other between send and receive."""
    def microbatch(stage, turn):
        with torch.cuda.stream(stream):  # which does nothing with None
            hidden = x[stage]
            for layer in range(LAYERS):
                with turn():
                    ids, weights = tables[stage][layer]
                    connector.send_attn_output(hidden, afd.AFDTransferContext(
                        afd.AFDTransferMetadata(layer, stage, [len(hidden)])), topk_ids=ids,
                        topk_weights=weights)
                with turn():
                    hidden = connector.recv_ffn_output(torch.empty_like(hidden), ubatch_idx=stage)
            y[stage].copy_(hidden)

    by_turns(microbatch)


def wanted(x, rank, stage):
    for layer in range(LAYERS):
        x = layer_of(x, *routing(len(x), 7 * rank + 3 * stage + layer), layer)
    return x


def rows_of(rank, stage, step):
    return 1 + (3 * rank + 5 * stage + step) % TOKENS


def attend(connector):
    rank = connector.role_rank
    for step in range(STEPS):
        x = [torch.arange(rows * HIDDEN, dtype=torch.float32).view(rows, HIDDEN) + 10 * rank + step
             for rows in (rows_of(rank, stage, step) for stage in range(2))]
        y = [torch.empty_like(each) for each in x]
        microbatches(connector, x, y, tables_of(rank, x))
        for stage in range(2):
            assert torch.equal(y[stage], wanted(x[stage], rank, stage)), (rank, stage, step)
    connector._context.barrier()


def serve(connector, attn, gather=False):
    """Items of each attention rank and stage come in the order of layers; who comes first is not said."""
    seen = {(a, s): 0 for a in range(attn) for s in range(2)}
    for n in range(STEPS * LAYERS * 2 * attn):
        item = connector.recv_ffn_work_item(stage_idx=0, max_num_tokens=TOKENS)
        count = seen[item.sender, item.stage_idx]
        seen[item.sender, item.stage_idx] += 1
        step, layer = divmod(count, LAYERS)
        assert (item.layer_idx, item.num_tokens) == (layer, rows_of(item.sender, item.stage_idx, step)), \
            (n, item.sender, item.stage_idx, item.layer_idx, item.num_tokens)
        assert item.context.metadata.validate_tensor_shape(tuple(item.hidden_states.shape))
        out = compute(item)
        if n % 2:
            sent = connector.send_ffn_work_item_output(item, out)
            assert sent is out
        else:  # the shared expert, which is another's where it is not this rank's, adds nothing here
            connector.send_ffn_work_item_output(item, afd.AFDF2ATransferPayload(
                out, torch.zeros_like(item.context.states.expand_x_shared)))
    connector._context.barrier()


@unittest.skipIf(REASON, REASON)
class Async(job.TestCase):
    def check(self, attn, ffn, first="ffn"):
        def body(connector):
            assert connector.control_plane is None
            if connector.topology.is_ffn:
                serve(connector, attn)
            else:
                attend(connector)
        self.assertEqual(run(attn, ffn, body, first, name=stepaf.vllm.ASYNC_CONNECTOR), [0] * (attn + ffn))

    def test_either_role_first(self):
        for first in ("attention", "ffn"):
            self.check(1, 1, first)

    def test_any_numbers(self):
        for attn, ffn in ((2, 1), (1, 2), (2, 3)):
            with self.subTest(f"{attn}A{ffn}F"):
                self.check(attn, ffn)

    def test_shared_experts(self):
        """Each FFN rank computes them for its share of the rows."""
        def body(connector):
            barrier = connector._context.barrier
            if not connector.topology.is_ffn:
                for rows in (1, 5):
                    x = torch.arange(rows * HIDDEN, dtype=torch.float32).view(rows, HIDDEN)
                    ids, weights = routing(rows, 0)
                    connector.send_attn_output(x, afd.AFDTransferContext(afd.AFDTransferMetadata(3, 1, [rows])),
                                               topk_ids=ids, topk_weights=weights)
                    out = connector.recv_ffn_output(torch.empty_like(x), ubatch_idx=1)
                    assert torch.equal(out, layer_of(x, ids, weights, 3) + 64 * x), rows
                barrier()
                return
            for _ in range(2):
                item = connector.recv_ffn_work_item(stage_idx=0, max_num_tokens=TOKENS)
                shared = item.context.states.expand_x_shared
                assert len(shared) == item.shared_num_tokens <= item.total_num_tokens
                with self.assertRaisesRegex(ValueError, "shared_output has"):
                    connector.send_ffn_work_item_output(item, afd.AFDF2ATransferPayload(
                        compute(item), torch.zeros(TOKENS, HIDDEN)))
                connector.send_ffn_work_item_output(item, afd.AFDF2ATransferPayload(compute(item), 64 * shared))
            barrier()
        self.assertEqual(run(1, 2, body, name=stepaf.vllm.ASYNC_CONNECTOR), [0] * 3)

    def test_into_a_buffer_and_timeouts(self):
        def body(connector):
            barrier = connector._context.barrier
            if connector.topology.is_ffn:
                began = time.monotonic()
                for receive in (connector.recv_attn_output, connector.recv_ffn_work_item):
                    with self.assertRaises(stepaf.TimeoutError):
                        receive(timeout_ms=20)
                assert time.monotonic() - began < 30
                barrier()
                buffer = torch.zeros(TOKENS, HIDDEN)
                for args, kwargs, word in (((buffer,), {}, "routed_out="), ((0, buffer), {}, "positional"),
                                           ((), {"routed": buffer}, "routed")):
                    with self.assertRaisesRegex(TypeError, word):
                        connector.recv_attn_output(*args, **kwargs)
                got = connector.recv_attn_output(ubatch_idx=1, routed_out=buffer, timeout_ms=60000)
                assert got.hidden_states.data_ptr() == buffer.data_ptr() and buffer[1].eq(4).all()
                assert got.context.metadata.layer_idx == 9 and got.context.metadata.seq_lens == [2]
                with self.assertRaisesRegex(stepaf.InvalidError, "to 2 rows"):
                    connector.send_ffn_output(buffer, got.context)
                connector.send_ffn_output(buffer[:2] + 1, got.context)
                with self.assertRaisesRegex(RuntimeError, "not that of a receive"):
                    connector.send_ffn_output(buffer[:2], afd.AFDTransferContext(got.context.metadata))
                barrier()
                return
            barrier()
            x = torch.full((2, HIDDEN), 4.0)
            connector.send_attn_output(x, afd.AFDTransferContext(afd.AFDTransferMetadata(9, 0, [2])),
                                       topk_ids=torch.zeros(2, TOP_K, dtype=torch.int64),
                                       topk_weights=torch.zeros(2, TOP_K))
            assert connector.recv_ffn_output(x) is x and x.eq(5).all()
            barrier()
        self.assertEqual(run(1, 1, body, name=stepaf.vllm.ASYNC_CONNECTOR), [0, 0])

    def test_what_is_refused(self):
        def body(connector):
            barrier = connector._context.barrier
            if connector.topology.is_ffn:
                with self.assertRaisesRegex(stepaf.ProtocolError, "not a batch of this connector"):
                    connector.recv_ffn_work_item(timeout_ms=60000)
                barrier()
                return
            x, context = torch.zeros(2, HIDDEN), afd.AFDTransferContext(afd.AFDTransferMetadata(0, 0, [2]))
            good = {"topk_ids": torch.zeros(2, TOP_K, dtype=torch.int32), "topk_weights": torch.zeros(2, TOP_K)}
            with self.assertRaisesRegex(RuntimeError, "needs topk_ids"):
                connector.send_attn_output(x, context, topk_ids=good["topk_ids"])
            with self.assertRaisesRegex(stepaf.InvalidError, "topk_weights"):
                connector.send_attn_output(x, context, topk_ids=good["topk_ids"], topk_weights=torch.zeros(2, 1))
            with self.assertRaisesRegex(ValueError, "3 rows"):
                connector.send_attn_output(x, afd.AFDTransferContext(afd.AFDTransferMetadata(0, 0, [3])), **good)
            for layer, stage, sentence in ((1 << 16, 0, "layer 65536"), (0, 2, "there are 2"), (0, -1, "there are 2")):
                with self.assertRaisesRegex(stepaf.InvalidError, sentence):
                    connector.send_attn_output(x, afd.AFDTransferContext(
                        afd.AFDTransferMetadata(layer, stage, [2])), **good)
            with self.assertRaisesRegex(stepaf.StateError, "none were sent"):
                connector.recv_ffn_output(x)
            # A peer that is not this connector: the rows do not fit what it says.
            pack, _work.pack = _work.pack, lambda *unused: pack(0, 0, 3)
            connector.send_attn_output(x, context, **good)
            _work.pack = pack
            with self.assertRaisesRegex(stepaf.StateError, "sent twice"):
                connector.send_attn_output(x, context, **good)
            with self.assertRaises(stepaf.CanceledError):
                connector.recv_ffn_output(x)
            barrier()
        self.assertEqual(run(1, 1, body, name=stepaf.vllm.ASYNC_CONNECTOR), [0, 0])

    def test_close_ends_a_receive(self):
        self.assertEqual(run(1, 1, close_while_it_waits, name=stepaf.vllm.ASYNC_CONNECTOR), [0, 0])

    def test_a_model_without_experts(self):
        connector = make("ffn", 0, 1, 1, 1, name=stepaf.vllm.ASYNC_CONNECTOR)
        with self.assertRaisesRegex(RuntimeError, "not initialized"):
            connector.recv_ffn_work_item(stage_idx=0, max_num_tokens=1)
        self.assertEqual((connector.n_experts, connector.expert_per_rank), (EXPERTS, EXPERTS))

    def test_operator_has_a_fake(self):
        self.run_apart(self.use_fake)

    def use_fake(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            self.assertIsNone(torch.ops.stepaf_afd.send_routed(
                torch.empty(4, HIDDEN), torch.empty(4, TOP_K), torch.empty(4, TOP_K), 0, 0, 1))


def close_while_it_waits(connector):
    if not connector.topology.is_ffn:
        connector._context.barrier()
        try:
            connector._context.barrier()  # which ends when the FFN rank has left
        except stepaf.PeerLostError:
            return
        raise AssertionError("the FFN rank has come to a barrier")
    ended = []

    def pend():
        try:
            connector.recv_ffn_work_item(stage_idx=0, max_num_tokens=TOKENS)
        except stepaf.StepafError as error:
            ended.append(error)
    thread = threading.Thread(target=pend)
    thread.start()
    connector._context.barrier()
    time.sleep(0.1)  # most likely it waits by now
    began = time.monotonic()
    connector.close()
    thread.join()
    assert time.monotonic() - began < 20
    assert len(ended) == 1 and isinstance(ended[0], stepaf.CanceledError), ended


@unittest.skipIf(REASON, REASON)
class Select(unittest.TestCase):
    """The choice of experts, compared with one that is made row by row."""

    def reference(self, row, top_k, groups, best_groups, bias, sigmoid, renormalize, factor):
        scores = (row.sigmoid() if sigmoid else row.softmax(-1)).tolist()
        biased = [score + (bias[e].item() if bias is not None else 0) for e, score in enumerate(scores)]
        size = len(scores) // groups
        worth = [sum(sorted(biased[g * size:(g + 1) * size])[-2:]) if bias is not None
                 else max(biased[g * size:(g + 1) * size]) for g in range(groups)]
        allowed = sorted(range(groups), key=lambda g: -worth[g])[:best_groups]
        ids = sorted((e for e in range(len(scores)) if e // size in allowed), key=lambda e: -biased[e])[:top_k]
        total = sum(scores[e] for e in ids) if renormalize else 1
        return ids, [factor * scores[e] / total for e in ids]

    def test_select(self):
        torch.manual_seed(7)
        logits = torch.randn(50, 16)
        for groups, best, bias in ((1, 1, None), (4, 2, None), (4, 2, torch.randn(16)), (1, 1, torch.randn(16))):
            for scoring in ("softmax", "sigmoid"):
                for renormalize in (True, False):
                    weights, ids = _select.select_experts(
                        hidden_states=None, router_logits=logits, top_k=4, use_grouped_topk=True,
                        renormalize=renormalize, scoring_func=scoring, num_expert_group=groups, topk_group=best,
                        routed_scaling_factor=2.5, e_score_correction_bias=bias, num_experts=16)
                    self.assertEqual((ids.dtype, weights.dtype), (torch.int32, torch.float32))
                    for row in range(50):
                        wanted_ids, wanted_weights = self.reference(
                            logits[row], 4, groups, best, bias, scoring == "sigmoid", renormalize, 2.5)
                        self.assertEqual(ids[row].tolist(), wanted_ids)
                        for a, b in zip(weights[row].tolist(), wanted_weights):
                            self.assertAlmostEqual(a, b, places=5)

    def test_what_is_refused(self):
        logits = torch.randn(2, 6)
        with self.assertRaises(NotImplementedError):
            _select.select_experts(router_logits=logits, top_k=2, mix_placement=True)
        with self.assertRaisesRegex(ValueError, "tanh"):
            _select.select_experts(router_logits=logits, top_k=2, scoring_func="tanh")
        with self.assertRaisesRegex(ValueError, "not 4 groups"):
            _select.select_experts(router_logits=logits, top_k=2, use_grouped_topk=True, num_expert_group=4)


def attend_on_gpu(connector):
    """Eager first, of which all is enqueued before any FFN rank does anything; then a graph, replayed."""
    rank, stream, graph = connector.role_rank, torch.cuda.Stream(), torch.cuda.CUDAGraph()
    x = [torch.zeros(3 + 4 * stage + rank, HIDDEN, device="cuda") for stage in range(2)]
    y, tables = [torch.zeros_like(each) for each in x], tables_of(rank, x)
    for step in range(8):
        for stage, each in enumerate(x):
            each.copy_(torch.arange(each.numel(), device="cuda").view_as(each) + 100 * step + 10 * rank)
        torch.cuda.synchronize()
        if step == 2:
            with torch.cuda.graph(graph, stream=stream):
                microbatches(connector, x, y, tables, stream)
        if step < 2:
            microbatches(connector, x, y, tables, stream)
        else:
            with torch.cuda.stream(stream):
                graph.replay()
        if step == 0:
            connector._context.barrier()
        torch.cuda.synchronize()
        connector.check()
        for stage in range(2):
            expected = wanted(x[stage].cpu(), rank, stage)
            assert torch.equal(y[stage].cpu(), expected), (rank, step, stage, y[stage][:, 0], expected[:, 0])
    connector._context.barrier()
    graph.reset()


def serve_on_gpu(connector, attn):
    seen = {(a, s): 0 for a in range(attn) for s in range(2)}
    connector._context.barrier()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(8 * LAYERS * 2 * attn):
            item = connector.recv_ffn_work_item(stage_idx=0, max_num_tokens=TOKENS)
            place = item.sender, item.stage_idx
            assert item.layer_idx == seen[place] % LAYERS, (place, item.layer_idx, seen)
            assert item.num_tokens == 3 + 4 * item.stage_idx + item.sender
            seen[place] += 1
            connector.send_ffn_work_item_output(item, compute(item))
        torch.cuda.synchronize()
    assert set(seen.values()) == {8 * LAYERS}
    connector._context.barrier()


@unittest.skipIf(REASON or job.NO_GPU, REASON or job.NO_GPU)
class AsyncOnGpu(job.TestCase):
    def check(self, attn, ffn):
        def body(connector):
            if connector.topology.is_ffn:
                serve_on_gpu(connector, attn)
            else:
                attend_on_gpu(connector)
        self.assertEqual(run(attn, ffn, body, extra={"device": "cuda"}, name=stepaf.vllm.ASYNC_CONNECTOR),
                         [0] * (attn + ffn))

    def test_1a1f(self):
        self.check(1, 1)

    def test_any_numbers(self):
        for attn, ffn in ((2, 1), (1, 2), (2, 2)):
            with self.subTest(f"{attn}A{ffn}F"):
                self.check(attn, ffn)

    def test_a_dead_attention_rank(self):
        """The receive that waits on the GPU is told."""
        def body(connector):
            connector._context.barrier()
            if not connector.topology.is_ffn:
                os._exit(0)
            with self.assertRaises(stepaf.PeerLostError):
                connector.recv_ffn_work_item(stage_idx=0, max_num_tokens=TOKENS)
        self.assertEqual(run(1, 1, body, extra={"device": "cuda"}, name=stepaf.vllm.ASYNC_CONNECTOR), [0, 0])

    def test_close_ends_a_receive(self):
        self.assertEqual(run(1, 1, close_while_it_waits, extra={"device": "cuda"},
                             name=stepaf.vllm.ASYNC_CONNECTOR), [0, 0])


if __name__ == "__main__":
    job.main()
