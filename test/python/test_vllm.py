# SPDX-License-Identifier: Apache-2.0
"""The connector for vLLM's AFD plugin: each line of its contract, on the CPU and on GPUs. AFD_PLUGIN names
a directory with the plugin's source, which is then used instead of the stand-in."""

import os
import pathlib
import socket
import sys
import threading
import time
import traceback
import types
import unittest

import job
import stepaf

sys.path.insert(0, os.environ.get("AFD_PLUGIN") or
                str(pathlib.Path(__file__).parent / "afd_stand_in"))
try:
    import torch
except ImportError as error:
    torch = None
    REASON = f"no torch: {error}"
else:
    REASON = ""
    if os.environ.get("AFD_PLUGIN"):
        for name in ("vllm", "vllm.forward_context"):
            sys.modules.setdefault(name, types.ModuleType(name))
        sys.modules["vllm.forward_context"].DPMetadata = type("DPMetadata", (), {})
    import afd_plugin.connectors as afd

    import stepaf.vllm
    from stepaf.vllm._topology import Topology, parts
    stepaf.vllm.register()

HIDDEN, EXPERTS, TOKENS, LAYERS = 8, 4, 16, 20


def make(role, rank, attn, ffn, port, gate=False, extra=None):
    settings = {"device": "cpu", "max_tokens": TOKENS, "num_stages": 2, **(extra or {})}
    n = types.SimpleNamespace
    config = n(role=role, host="127.0.0.1", port=port, num_attention_ranks=attn, num_ffn_ranks=ffn,
               compute_gate_on_attention=gate, connector=stepaf.vllm.CONNECTOR)
    model = n(dtype=torch.float32, hf_config=n(hidden_size=HIDDEN, num_experts=EXPERTS))
    vllm = n(model_config=model, parallel_config=n(), scheduler_config=n(max_num_batched_tokens=TOKENS),
             additional_config={"afd": {"connector_extra_config": settings}})
    cls = afd.AFDConnectorFactory.get_connector_class(stepaf.vllm.CONNECTOR)
    return cls(rank, 0, vllm, config, rank)


def rows_of(rank, stage, step=0):
    return 1 + (3 * rank + 2 * stage + step) % 5


def attend(connector, rank, attn, gate):
    """Two threads with a microbatch each, which yield to each other between send and receive."""
    turns = [threading.Semaphore(1), threading.Semaphore(0)]
    failures = []
    plane = connector.control_plane
    for step in range(2):
        payload = afd.AFDControlPayload(
            {s: afd.AFDDPMetadata(torch.tensor([rows_of(a, s, step) for a in range(attn)],
                                               dtype=torch.int32)) for s in range(2)}, False, step == 0)
        plane.update_state_from_dp_metadata(payload)
        plane.send_dp_metadata_list(payload)

        def microbatch(stage, step=step):
            try:
                rows = rows_of(rank, stage, step)
                for layer in range(LAYERS):
                    assert turns[stage].acquire(timeout=60)
                    x = torch.arange(rows * HIDDEN, dtype=torch.float32).view(rows, HIDDEN) \
                        + 1000 * rank + 100 * stage + layer
                    kept = x.clone()
                    logits = torch.full((rows, EXPERTS), float(rank)) if gate else None
                    context = afd.AFDTransferContext(afd.AFDTransferMetadata(layer, stage, [rows]))
                    connector.send_attn_output(x, context, router_logits=logits)
                    turns[1 - stage].release()
                    assert turns[stage].acquire(timeout=60)
                    out = connector.recv_ffn_output(x, ubatch_idx=stage)
                    assert out is x
                    assert torch.equal(out, kept * 2 + (rank if gate else 0)), (rank, stage, layer)
                    turns[1 - stage].release()
            except BaseException:
                traceback.print_exc()
                failures.append(stage)
                turns[1 - stage].release()

        threads = [threading.Thread(target=microbatch, args=(stage,)) for stage in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures


def serve(connector, attn, ffn, gate):
    peers = connector.topology.peers()
    for step in range(2):
        payload = connector.control_plane.recv_dp_metadata_list()
        assert payload.is_warmup == (step == 0) and not payload.is_graph_capturing
        assert payload.dp_metadata_list[1].num_tokens_across_dp_cpu.tolist() == [
            rows_of(a, 1, step) for a in range(attn)]
        connector.control_plane.update_state_from_dp_metadata(payload)
        for _ in range(LAYERS):
            for stage in sorted(payload.dp_metadata_list):
                spec = afd.AFDExpertRoutingSpec(EXPERTS, torch.float32) if gate else None
                got = connector.recv_attn_output(ubatch_idx=stage, routing_spec=spec)
                if ffn <= attn:
                    assert got.context.metadata.seq_lens == [rows_of(a, stage, step) for a in peers]
                assert got.context.metadata.seq_lens == connector.control_plane.counts(stage)
                y = got.hidden_states * 2
                if gate:
                    y += got.router_logits[:, :1]
                connector.send_ffn_output(y, got.context)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(attn, ffn, first="ffn", gate=False, body=None, extra=None):
    port, pids = free_port(), []
    ranks = [("attention", r) for r in range(attn)] + [("ffn", r) for r in range(ffn)]
    for role, rank in sorted(ranks, key=lambda each: each[0] != first):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                connector = make(role, rank, attn, ffn, port, gate, extra)
                if extra and extra.get("device") == "cuda":  # as vLLM's workers do, before the connector
                    world = rank + (0 if role == "attention" else attn)
                    connector.local_rank = world % torch.cuda.device_count()
                assert not connector.is_initialized
                connector.init_afd_connector()
                context = connector._context
                connector.init_afd_connector()
                assert connector.is_initialized and connector._context is context
                if body:
                    body(connector)
                elif role == "ffn":
                    serve(connector, attn, ffn, gate)
                else:
                    attend(connector, rank, attn, gate)
                if not body:
                    context.barrier()
                del context
                connector.close()
                connector.close()
                assert not connector.is_initialized
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        pids.append(pid)
        time.sleep(0.1)
    return job.end(pids)


@unittest.skipIf(REASON, REASON)
class Connector(job.TestCase):
    def test_either_role_first(self):
        for first in ("attention", "ffn"):
            self.assertEqual(run(1, 1, first), [0, 0])

    def test_fans(self):
        for attn, ffn in ((2, 1), (1, 2), (3, 2)):
            with self.subTest(f"{attn}A{ffn}F"):
                self.assertEqual(run(attn, ffn), [0] * (attn + ffn))

    def test_router_logits(self):
        for attn, ffn in ((2, 1), (1, 2)):
            self.assertEqual(run(attn, ffn, gate=True), [0] * 3)

    def test_close_ends_a_receive(self):
        def body(connector):
            if not connector.topology.is_ffn:
                time.sleep(1)
                return
            ended = []

            def pend(receive):
                try:
                    receive()
                except stepaf.StepafError as error:
                    ended.append(error)
            for receive in (connector.control_plane.recv_dp_metadata_list, connector.recv_attn_output):
                ended.append(None)
                thread = threading.Thread(target=pend, args=(receive,))
                thread.start()
            time.sleep(0.2)
            began = time.monotonic()
            connector.close()
            job.until(lambda: len(ended) == 4)
            assert time.monotonic() - began < 20
            assert all(isinstance(e, (stepaf.CanceledError, type(None))) for e in ended), ended
        self.assertEqual(run(1, 1, body=body), [0, 0])

    def test_extra_config(self):
        cls = afd.AFDConnectorFactory.get_connector_class(stepaf.vllm.CONNECTOR)
        self.assertTrue(issubclass(cls, afd.AFDConnectorBase))
        self.assertEqual(cls.parse_extra_config(None).num_stages, 0)
        with self.assertRaisesRegex(ValueError, "no setting depht"):
            cls.parse_extra_config({"depht": 1})
        for raw in ({"num_stages": "2"}, {"num_stages": 1.5}, [1]):
            with self.assertRaises(TypeError):
                cls.parse_extra_config(raw)
        with self.assertRaises(ValueError):
            cls.parse_extra_config({"num_stages": -1})
        with self.assertRaises(AttributeError):
            cls.parse_extra_config({}).num_stages = 3

    def test_before_init(self):
        connector = make("ffn", 0, 1, 1, 1)
        for call in (connector.recv_attn_output, connector.control_plane.recv_dp_metadata_list):
            with self.assertRaisesRegex(RuntimeError, "not initialized"):
                call()
        connector.close()
        with self.assertRaises(ValueError):
            make("ffn", 1, 1, 1, 1)

    def test_topology(self):
        for attn in range(1, 9):
            for ffn in range(1, 9):
                ranks = [Topology(f, r, attn, ffn, False) for f in (False, True)
                         for r in range(ffn if f else attn)]
                self.assertEqual(sorted(t.world_rank() for t in ranks), list(range(attn + ffn)))
                for t in ranks:
                    for peer in t.peers():
                        other = Topology(not t.is_ffn, peer, attn, ffn, False)
                        self.assertIn(t.role_rank, other.peers())
                        self.assertEqual(t.library_rank() % t.lanes, other.library_rank() % t.lanes)
        for rows in range(1, 9):
            for count in range(1, 5):
                self.assertEqual(sum(own for _, _, own in parts(rows, count)), rows)
                self.assertTrue(all(end > begin for begin, end, _ in parts(rows, count)))

    def test_operators_have_fakes(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        import stepaf.vllm.connector
        with FakeTensorMode():
            x = torch.empty(4, HIDDEN)
            self.assertIsNone(torch.ops.stepaf_afd.send(x, None, 0, 1))
            self.assertIsNone(torch.ops.stepaf_afd.recv(x, 0, 1))
        with self.assertRaisesRegex(stepaf.HandleError, "has the handle 999"):
            torch.ops.stepaf_afd.recv(torch.empty(1, 1), 0, 999)


GRAPH_LAYERS = 6


def payload_of(rows, capturing=False):
    """rows: of each attention rank, by stage."""
    return afd.AFDControlPayload({s: afd.AFDDPMetadata(torch.tensor(each, dtype=torch.int32))
                                  for s, each in enumerate(rows)}, capturing, False)


def microbatches(connector, stream, x, y, gate):
    """A step of two microbatch threads on one stream: each layer adds 1, FFN ranks add 10 (and the
    router logits, which are 100)."""
    turns, failures = [threading.Semaphore(1), threading.Semaphore(0)], []

    def microbatch(stage):
        try:
            with torch.cuda.stream(stream):
                hidden = x[stage]
                for layer in range(GRAPH_LAYERS):
                    assert turns[stage].acquire(timeout=60)
                    hidden = hidden + 1
                    logits = torch.full((len(hidden), EXPERTS), 100.0, device="cuda") if gate else None
                    connector.send_attn_output(hidden, afd.AFDTransferContext(
                        afd.AFDTransferMetadata(layer, stage, [len(hidden)])), router_logits=logits)
                    turns[1 - stage].release()
                    assert turns[stage].acquire(timeout=60)
                    hidden = connector.recv_ffn_output(torch.empty_like(hidden), ubatch_idx=stage)
                    turns[1 - stage].release()
                y[stage].copy_(hidden)
        except BaseException:
            traceback.print_exc()
            failures.append(stage)
            turns[1 - stage].release()

    threads = [threading.Thread(target=microbatch, args=(stage,)) for stage in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def attend_on_gpu(connector, rank, attn, gate):
    """Eager, captured and replayed, with other rows in between."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    many = [[3 + a for a in range(attn)], [7 + a for a in range(attn)]]
    few = [[2] * attn, [5 + a for a in range(attn)]]
    said = [(many, False), (few, False), (many, True)] + [(many, False), (few, False)] * 3
    x = [torch.zeros(each[rank], HIDDEN, device="cuda") for each in many]
    y = [torch.zeros_like(each) for each in x]
    captured = False
    for step, (rows, capturing) in enumerate(said):
        payload = payload_of(rows, capturing)
        connector.control_plane.update_state_from_dp_metadata(payload)
        connector.control_plane.send_dp_metadata_list(payload)
        now = [each[:rows[stage][rank]] for stage, each in enumerate(x)]
        then = [each[:rows[stage][rank]] for stage, each in enumerate(y)]
        for stage, each in enumerate(now):
            each.fill_(1000 * step + 100000 * rank + 10000 * stage)
            then[stage].zero_()
        torch.cuda.synchronize()
        if capturing:
            with torch.cuda.graph(graph, stream=stream):
                microbatches(connector, stream, now, then, gate)
            captured = True
            continue
        if captured and rows is many:
            with torch.cuda.stream(stream):
                graph.replay()
        else:
            microbatches(connector, stream, now, then, gate)
        if step == 0:  # all is enqueued, and no FFN rank has done anything
            connector._context.barrier()
        torch.cuda.synchronize()
        for stage, (before, after) in enumerate(zip(now, then)):
            wanted = before + GRAPH_LAYERS * (111 if gate else 11)
            assert torch.equal(after, wanted), (rank, step, stage, after[:, 0], wanted[:, 0])
    connector._context.barrier()
    graph.reset()


def serve_on_gpu(connector, gate):
    graphs, stream = {}, torch.cuda.Stream()

    def step(stages):
        for _ in range(GRAPH_LAYERS):
            for stage in stages:
                spec = afd.AFDExpertRoutingSpec(EXPERTS, torch.float32) if gate else None
                got = connector.recv_attn_output(ubatch_idx=stage, routing_spec=spec)
                out = got.hidden_states + 10
                if gate:
                    out += got.router_logits[:, :1]
                connector.send_ffn_output(out, got.context)

    connector._context.barrier()
    for _ in range(9):
        payload = connector.control_plane.recv_dp_metadata_list()
        connector.control_plane.update_state_from_dp_metadata(payload)
        stages = sorted(payload.dp_metadata_list)
        key = tuple(tuple(connector.control_plane.counts(stage)) for stage in stages)
        with torch.cuda.stream(stream):
            if payload.is_graph_capturing:
                graphs[key] = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graphs[key], stream=stream):
                    step(stages)
            elif key in graphs:
                graphs[key].replay()
            else:
                step(stages)
        torch.cuda.synchronize()
    assert len(graphs) == 1
    connector._context.barrier()
    for graph in graphs.values():
        graph.reset()


@unittest.skipIf(REASON or job.NO_GPU, REASON or job.NO_GPU)
class OnGpu(job.TestCase):
    def check(self, attn, ffn, gate=False):
        def body(connector):
            if connector.topology.is_ffn:
                serve_on_gpu(connector, gate)
            else:
                attend_on_gpu(connector, connector.role_rank, attn, gate)
        self.assertEqual(run(attn, ffn, gate=gate, body=body, extra={"device": "cuda"}), [0] * (attn + ffn))

    def test_1a1f(self):
        self.check(1, 1)

    def test_fans(self):
        for attn, ffn in ((2, 1), (1, 2)):
            with self.subTest(f"{attn}A{ffn}F"):
                self.check(attn, ffn)

    def test_router_logits(self):
        self.check(1, 1, True)


if __name__ == "__main__":
    job.main()
