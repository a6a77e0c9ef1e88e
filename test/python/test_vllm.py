# SPDX-License-Identifier: Apache-2.0
"""The synchronous connector for vLLM's AFD plugin: each line of its contract, on the CPU and on GPUs."""

import gc
import os
import threading
import time
import types
import unittest

import job
import stepaf
from vllm_job import EXPERTS, HIDDEN, REASON, afd, by_turns, free_port, make, run, torch

if torch:
    import stepaf.vllm
    from stepaf.vllm import _base as base
    from stepaf.vllm._topology import Topology, parts

LAYERS = 20


def rows_of(rank, stage, step=0):
    return 1 + (3 * rank + 2 * stage + step) % 5


def attend(connector, rank, attn, gate):
    """Two threads with a microbatch each, which yield to each other between send and receive."""
    plane = connector.control_plane
    for step in range(2):
        payload = afd.AFDControlPayload(
            {s: afd.AFDDPMetadata(torch.tensor([rows_of(a, s, step) for a in range(attn)],
                                               dtype=torch.int32)) for s in range(2)}, False, step == 0)
        plane.update_state_from_dp_metadata(payload)
        plane.send_dp_metadata_list(payload)

        def microbatch(stage, turn, step=step):
            rows = rows_of(rank, stage, step)
            for layer in range(LAYERS):
                with turn():
                    x = torch.arange(rows * HIDDEN, dtype=torch.float32).view(rows, HIDDEN) \
                        + 1000 * rank + 100 * stage + layer
                    kept = x.clone()
                    logits = torch.full((rows, EXPERTS), float(rank)) if gate else None
                    context = afd.AFDTransferContext(afd.AFDTransferMetadata(layer, stage, [rows]))
                    connector.send_attn_output(x, context, router_logits=logits)
                with turn():
                    out = connector.recv_ffn_output(x, ubatch_idx=stage)
                    assert out is x
                    assert torch.equal(out, kept * 2 + (rank if gate else 0)), (rank, stage, layer)

        by_turns(microbatch)


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


@unittest.skipIf(REASON, REASON)
class Connector(job.TestCase):
    def check(self, attn, ffn, gate=False, first="ffn"):
        def body(connector):
            if connector.topology.is_ffn:
                serve(connector, attn, ffn, gate)
            else:
                attend(connector, connector.role_rank, attn, gate)
            connector._context.barrier()
        self.assertEqual(run(attn, ffn, body, first, gate), [0] * (attn + ffn))

    def test_either_role_first(self):
        for first in ("attention", "ffn"):
            self.check(1, 1, first=first)

    def test_environment_of_another_job(self):
        """What torchrun, or a launcher of the workers, says is not about the connector's ranks."""
        others = {"RANK": "7", "WORLD_SIZE": "9", "TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "127.0.0.9",
                  "TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": "1", "STEPAF_LOCAL_SIZE": "5",
                  "STEPAF_LOCAL_RANK": "4", "STEPAF_ROLE": "ffn", "STEPAF_LANES": "3", "STEPAF_BOOT": "mpi",
                  "STEPAF_RANK": "7", "STEPAF_SIZE": "9", "STEPAF_MESH": "full", "STEPAF_SPLIT": "attn=4,ffn=5",
                  "STEPAF_INIT_TIMEOUT_US": "1"}

        def body(connector):
            assert {name: os.environ.get(name) for name in others} == others
            assert "STEPAF_MEET" not in os.environ
            connector._context.barrier()
        saved = dict(os.environ)
        os.environ.update(others)
        try:
            self.assertEqual(run(1, 1, body), [0, 0])
        finally:
            os.environ.clear()
            os.environ.update(saved)

    def test_fans(self):
        for attn, ffn in ((2, 1), (1, 2), (3, 2)):
            with self.subTest(f"{attn}A{ffn}F"):
                self.check(attn, ffn)

    def test_router_logits(self):
        for attn, ffn in ((2, 1), (1, 2)):
            self.check(attn, ffn, True)

    def test_close_ends_a_receive(self):
        def body(connector):
            if not connector.topology.is_ffn:
                with self.assertRaises(stepaf.PeerLostError):
                    connector._context.barrier()  # which ends when the FFN rank has left
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
        self.assertEqual(run(1, 1, body), [0, 0])

    def test_close_leaves_at_once(self):
        """Not only when a collector of reference cycles runs, which may be never; also where init fails."""
        ports = [free_port() for _ in range(2)]

        def must_fail(*unused):
            raise RuntimeError("no stages")

        def body(connector):
            gc.disable()
            if not connector.topology.is_ffn:
                x = torch.ones(2, HIDDEN)
                connector.send_attn_output(x, afd.AFDTransferContext(afd.AFDTransferMetadata(0, 0, [2])))
                connector.recv_ffn_output(x)
                context = connector._context
                assert context.exports
                connector.close()
                assert not context.exports
            else:
                got = connector.recv_attn_output(0)
                connector.send_ffn_output(got.hidden_states + 1, got.context)
                with self.assertRaises(stepaf.PeerLostError):
                    connector._context.barrier(timeout=30)
            for port, (owner, name) in zip(ports, ((stepaf.vllm._device.AttentionStages, "ready"),
                                                   (stepaf.vllm._device, "Operations"))):
                role, failure = ("ffn" if connector.topology.is_ffn else "attention"), None
                other, joined, join = make(role, 0, 1, 1, port), [], base.join
                if role == "attention":
                    setattr(owner, name, must_fail)
                    base.join = lambda *args: joined.append(join(*args)) or joined[0]
                try:
                    other.init_afd_connector()
                    other._context.barrier(timeout=30)
                except (stepaf.PeerLostError, RuntimeError) as error:
                    failure = error  # with its traceback
                assert isinstance(failure, RuntimeError if role == "attention" else stepaf.PeerLostError), failure
                base.join = join
                assert not any(context.exports for context in joined), name
        self.assertEqual(run(1, 1, body), [0, 0])

    def test_close_ends_init(self):
        """A close while the ranks have not met, and one while they commit."""
        def body(connector):
            if connector.topology.is_ffn:
                connector._context.barrier()
                return
            other = make("attention", 0, 1, 1, free_port(), extra={"init_timeout_s": 2})
            ended = []

            def begin():
                try:
                    other.init_afd_connector()
                except stepaf.StepafError as error:
                    ended.append(error)
            thread = threading.Thread(target=begin)
            thread.start()
            other.close()
            thread.join()
            assert len(ended) == 1 and not other.is_initialized
            connector._context.barrier()
        self.assertEqual(run(1, 1, body), [0, 0])

        connector = make("ffn", 0, 1, 1, free_port())
        joined = types.SimpleNamespace(closed=False, close=lambda: None)
        began, go = threading.Event(), threading.Event()

        def slow(*unused):
            began.set()
            assert go.wait(60)
            return joined
        saved, base.join = base.join, slow
        try:
            raised = []

            def begin():
                try:
                    connector.init_afd_connector()
                except stepaf.CanceledError as error:
                    raised.append(error)
            thread = threading.Thread(target=begin)
            thread.start()
            assert began.wait(60)
            connector.close()
            go.set()
            thread.join()
        finally:
            base.join = saved
        self.assertEqual(len(raised), 1)
        self.assertFalse(connector.is_initialized)

    def test_failures(self):
        """What a failed stage leaves behind, and what does not fit what the control plane told."""
        def context_of(stage, rows):
            return afd.AFDTransferContext(afd.AFDTransferMetadata(0, stage, [rows]))

        def body(connector):
            barrier, plane = connector._context.barrier, connector.control_plane
            if connector.topology.is_ffn:
                connector._stages.timeout = 0.05
                with self.assertRaises(stepaf.TimeoutError):
                    connector.recv_attn_output(0)  # one of two has sent
                barrier()
                connector._stages.timeout = None
                got = connector.recv_attn_output(0)
                assert got.context.metadata.seq_lens == [2, 2]
                assert got.hidden_states[:, 0].tolist() == [0, 0, 1, 1]
                with self.assertRaisesRegex(ValueError, "4 rows"):
                    connector.send_ffn_output(got.hidden_states[:3], got.context)
                connector.send_ffn_output(got.hidden_states + 1, got.context)
                barrier()
                plane.update_state_from_dp_metadata(payload_of([[3, 2]]))
                with self.assertRaisesRegex(stepaf.ProtocolError, "sent 2 rows, and the control plane told 3"):
                    connector.recv_attn_output(0)
                with self.assertRaisesRegex(stepaf.InvalidError, "stage 2: there are 2"):
                    connector.recv_attn_output(2)
                barrier()
                return
            x = torch.full((2, HIDDEN), float(connector.role_rank))
            for stage in (-1, 2):
                with self.assertRaisesRegex(stepaf.InvalidError, "there are 2"):
                    connector.send_attn_output(x, context_of(stage, 2))
            with self.assertRaisesRegex(stepaf.StateError, "none were sent"):
                connector.recv_ffn_output(x)
            with self.assertRaisesRegex(ValueError, "3 rows"):
                connector.send_attn_output(x, context_of(0, 3))
            if connector.role_rank == 0:
                connector.send_attn_output(x, context_of(0, 2))
                with self.assertRaisesRegex(stepaf.StateError, "sent twice"):
                    connector.send_attn_output(x, context_of(0, 2))
                connector._stages.timeout = 0.01
                with self.assertRaises(stepaf.TimeoutError):
                    connector.recv_ffn_output(x)
                connector._stages.timeout = None
            barrier()
            if connector.role_rank == 1:
                connector.send_attn_output(x, context_of(0, 2))
            assert connector.recv_ffn_output(x).eq(connector.role_rank + 1).all()
            barrier()
            connector.send_attn_output(x, context_of(0, 2))
            with self.assertRaises(stepaf.CanceledError):
                connector.recv_ffn_output(x)
            with self.assertRaisesRegex(stepaf.StateError, "none were sent"):
                connector.recv_ffn_output(x)
            barrier()
        self.assertEqual(run(2, 1, body), [0, 0, 0])

    def test_control_message_that_is_none(self):
        def body(connector):
            if connector.topology.is_ffn:
                for _ in bad:
                    with self.assertRaisesRegex(stepaf.ProtocolError, "control message"):
                        connector.control_plane.recv_dp_metadata_list()
                    connector._context.barrier()
                return
            control = connector._control
            for text in bad:
                memoryview(control._sources)[:len(text)] = text
                control._plan.start([control._sources[:len(text)]], wait=True).wait()
                connector._context.barrier()
        bad = (b"{", b"\xff", b"[]", b"{}", b'{"stages": {"a": []}, "capturing": 0, "warmup": 0}',
               b'{"stages": {"0": [4294967296]}, "capturing": 0, "warmup": 0}', b"[" * 1000)
        self.assertEqual(run(1, 1, body), [0, 0])

    def test_compiled(self):
        """A layer with both calls is one graph."""
        def body(connector):
            if connector.topology.is_ffn:
                for _ in range(3):
                    got = connector.recv_attn_output(1)
                    connector.send_ffn_output(got.hidden_states * 2, got.context)
                connector._context.barrier()
                return

            def layer(x):
                x = x + 1
                context = afd.AFDTransferContext(afd.AFDTransferMetadata(0, 1, [x.shape[0]]))
                connector.send_attn_output(x, context)
                return connector.recv_ffn_output(torch.empty_like(x), ubatch_idx=1) + 1

            run_layer = torch.compile(layer, fullgraph=True, backend="aot_eager")
            for i in range(3):
                x = torch.full((3, HIDDEN), float(i))
                assert torch.equal(run_layer(x), 2 * (x + 1) + 1), i
            connector._context.barrier()
        self.assertEqual(run(1, 1, body), [0, 0])

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
        with self.assertRaisesRegex(RuntimeError, "not initialized"):
            connector.control_plane.send_dp_metadata_list(payload_of([[1]]))
        connector.close()
        with self.assertRaises(ValueError):
            make("ffn", 1, 1, 1, 1)

    def test_topology(self):
        for attn in range(1, 9):
            for ffn in range(1, 9):
                for full in (False, True):
                    self.check_topology(attn, ffn, full)
        for rows in range(1, 9):
            for count in range(1, 5):
                self.assertEqual(sum(own for _, _, own in parts(rows, count)), rows)
                self.assertTrue(all(end > begin for begin, end, _ in parts(rows, count)))

    def check_topology(self, attn, ffn, full):
        ranks = [Topology(f, r, attn, ffn, full) for f in (False, True)
                 for r in range(ffn if f else attn)]
        self.assertEqual(sorted(t.world_rank() for t in ranks), list(range(attn + ffn)))
        self.assertEqual(Topology(True, 0, attn, ffn, full).world_rank(), 0)  # who is at "host"
        for t in ranks:
            for peer in t.peers():
                other = Topology(not t.is_ffn, peer, attn, ffn, full)
                self.assertIn(t.role_rank, other.peers())
                self.assertEqual(t.library_rank() % t.lanes, other.library_rank() % t.lanes)

    def test_operators_have_fakes(self):
        self.run_apart(self.use_fakes)

    def use_fakes(self):
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
    def microbatch(stage, turn):
        with torch.cuda.stream(stream):
            hidden = x[stage]
            for layer in range(GRAPH_LAYERS):
                with turn():
                    hidden = hidden + 1
                    logits = torch.full((len(hidden), EXPERTS), 100.0, device="cuda") if gate else None
                    connector.send_attn_output(hidden, afd.AFDTransferContext(
                        afd.AFDTransferMetadata(layer, stage, [len(hidden)])), router_logits=logits)
                with turn():
                    hidden = connector.recv_ffn_output(torch.empty_like(hidden), ubatch_idx=stage)
            y[stage].copy_(hidden)

    by_turns(microbatch)


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
        self.assertEqual(run(attn, ffn, body, gate=gate, extra={"device": "cuda"}), [0] * (attn + ffn))

    def test_1a1f(self):
        self.check(1, 1)

    def test_fans(self):
        for attn, ffn in ((2, 1), (1, 2)):
            with self.subTest(f"{attn}A{ffn}F"):
                self.check(attn, ffn)

    def test_router_logits(self):
        self.check(1, 1, True)

    def test_rows_that_were_not_told(self):
        """While warming up they are noticed on a GPU as well."""
        def body(connector):
            if connector.topology.is_ffn:
                for rows in (2, 3):
                    payload = payload_of([[rows], [rows]])
                    payload.is_warmup = True
                    connector.control_plane.update_state_from_dp_metadata(payload)
                    if rows == 2:
                        got = connector.recv_attn_output(1)
                        connector.send_ffn_output(got.hidden_states + 10, got.context)
                    else:
                        with self.assertRaisesRegex(stepaf.ProtocolError, "sent 2 rows, and the control plane told 3"):
                            connector.recv_attn_output(1)
                connector._context.barrier()
                return
            for i in range(2):
                x = torch.ones(2, HIDDEN, device="cuda")
                connector.send_attn_output(x, afd.AFDTransferContext(afd.AFDTransferMetadata(0, 1, [2])))
                if i == 0:
                    assert connector.recv_ffn_output(x, ubatch_idx=1).eq(11).all().item()
            connector._context.barrier()
        self.assertEqual(run(1, 1, body, extra={"device": "cuda"}), [0, 0])


if __name__ == "__main__":
    job.main()
