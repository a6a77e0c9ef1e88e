# SPDX-License-Identifier: Apache-2.0
"""What stepaf.torch sends and receives, and from where: with stand-ins for torch and for the plan."""

import types
import unittest

import job
import stepaf
import torch_stand_in
from torch_stand_in import Tensor

torch_stand_in.install()
import stepaf.torch as steptorch  # noqa: E402


class Sent:
    """A request: what was sent, as it was when it was started, and whose answers are there."""

    def __init__(self, sources, tensors=(), answered=()):
        self.data = [source.flat() for source in sources]
        self._tensors, self._answered = tensors, answered
        self.sent = True

    def wait(self, timeout=None):
        pass

    def answers(self):
        return self._answered

    def tensor(self, i):
        return self._tensors[i]


class Plan:
    """A plan of the host, or on streams, that keeps what it was told to send."""

    depth = 1

    def __init__(self, push, tensors=(), answered=(True,), stream=False):
        self.is_stream = stream
        self.context = types.SimpleNamespace(n_peers=len(answered), default_timeout=1, progress=lambda: None)
        self._push, self._tensors, self._answered = push, tensors, answered
        self.started, self.sizes = [], []

    def start(self, push=None):
        self.started.append(Sent(self._push if push is None else push, self._tensors, self._answered))
        return self.started[-1]

    def start_on_stream(self, stream, sizes):
        self.sizes.append(sizes)

    def wait_on_stream(self):
        pass

    def tensor(self, slot, peer, index):
        return self._tensors[peer]


class Batch:
    """A batch whose memory is the sender's again after the answer."""

    def __init__(self, *tensors):
        self._tensors, self.answer = tensors, None

    def __iter__(self):
        return iter(self._tensors)

    def respond(self, answers):
        self.answer = Sent(answers)
        for each in self._tensors:
            for place in each._places():
                each._storage.cells[place] = -1.0
        return self.answer


def tensor(*shape, device="cpu", first=0):
    made = Tensor(shape, device)
    made.fill(range(first, first + made.numel()))
    torch_stand_in.synchronize()
    return made


class Answers(job.TestCase):
    def test_of_some_ranks(self):
        """An answer is its own rank's, also where an earlier rank's is missing."""
        arrived = [tensor(4, first=10 * rank) for rank in range(3)]
        for answered in ((False, True, True), (True, False, True), (False, False, False), (True, True, True)):
            x = tensor(4)
            outs = [tensor(4, first=100) for _ in range(3)]
            plan = Plan([x], [each if there else None for each, there in zip(arrived, answered)], answered)
            link = steptorch.Exchange(plan, [x], [tensor(4) for _ in range(3)])
            link.start()
            link.wait(outs)
            self.assertEqual(link.answered, answered)
            for out, each, there in zip(outs, arrived, answered):
                self.assertEqual(out.flat(), each.flat() if there else tensor(4, first=100).flat())

    def test_of_a_rank_that_is_left_out(self):
        """Its tensors are not asked for, which would raise."""
        class Asked(Sent):
            def tensor(self, i):
                if i < 2:
                    raise stepaf.WouldBlockError("FFN rank 0 was left out", -3)
                return super().tensor(i)

        y = [tensor(4, first=10 * i) for i in range(4)]
        plan, outs = Plan([], y, (False, True)), [tensor(4, first=100) for _ in range(4)]
        plan.start = lambda push=None: Asked([], y, (False, True))
        link = steptorch.Exchange(plan, [], y)
        link.start()
        link.wait(outs)
        self.assertEqual([out.flat()[0] for out in outs], [100, 100, 20, 30])

    def test_as_many_as_planned(self):
        y = [tensor(4), tensor(4)]
        link = steptorch.Exchange(Plan([], y, (True, True)), [], y)
        link.start()
        with self.assertRaisesRegex(stepaf.InvalidError, "1 tensors, where the plan pulls 2"):
            link.wait(y[:1])
        link.wait()


class OnGpu(job.TestCase):
    """Tensors in GPU memory: the host's operations wait for what the current stream does with them."""

    def test_start(self):
        for place, value in (("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cuda")):
            x = tensor(4, device=place)
            link = steptorch.Exchange(Plan([x]), [x], [])
            link.start([Tensor((4,), value).fill([5, 6, 7, 8])])
            self.assertEqual(link.plan.started[0].data, [[5, 6, 7, 8]])
        x.fill([1, 2, 3, 4])
        link.start()
        self.assertEqual(link.plan.started[1].data, [[1, 2, 3, 4]])

    def test_start_in_place(self):
        x = tensor(4, device="cuda")
        link = steptorch.Exchange(Plan([x]), [x], [])
        x.fill([5, 6, 7, 8])
        link.start([x])
        self.assertEqual(link.plan.started[0].data, [[5, 6, 7, 8]])

    def test_wait(self):
        y, out = tensor(4, device="cuda"), tensor(4, device="cuda", first=100)
        link = steptorch.Exchange(Plan([], [y]), [], [tensor(4, device="cuda")])
        link.start()
        link.wait([out])
        y._storage.cells[:] = [-1.0] * 4  # as the next answer in the slot does
        torch_stand_in.synchronize()
        self.assertEqual(out.flat(), [0, 1, 2, 3])

    def test_server(self):
        """Also where only what is received is in GPU memory."""
        for device in ("cuda", "cpu"):
            batch, out = Batch(tensor(4, device="cuda")), tensor(4, device="cuda", first=100)
            server = steptorch.Server(types.SimpleNamespace(recv=lambda: batch), [tensor(4, device=device)])
            server.recv([out])
            server.respond([Tensor((4,), device).fill([5, 6, 7, 8])])
            torch_stand_in.synchronize()
            self.assertEqual((out.flat(), batch.answer.data), ([0, 1, 2, 3], [[5, 6, 7, 8]]))

    def test_streams_are_not_waited_for(self):
        x = tensor(4, device="cuda")
        link = steptorch.Exchange(Plan([x], [tensor(4, device="cuda")], stream=True), [x],
                                  [tensor(4, device="cuda")])
        link.start([tensor(4, device="cuda", first=50)])
        link.wait()
        self.assertEqual((link.plan.sizes, x.flat(), link.answered, link.slot), ([None], [0, 1, 2, 3], None, 0))
        torch_stand_in.synchronize()
        self.assertEqual(x.flat(), [50, 51, 52, 53])


class InPlace(job.TestCase):
    """Only what lies in its place row by row is used there; what only begins there is copied."""

    def test_start(self):
        for stream in (False, True):
            for change, shape in ((Tensor.t, (3, 3)), (lambda x: x[1:], (3, 3)), (lambda x: x[:2], (3, 3)),
                                  (lambda x: x, (3, 3)), (lambda x: x[:, :2], (3, 2)), (lambda x: x[:0], (3, 3))):
                memory = tensor(3, 3)
                x = tensor(*shape) if shape[1] == 2 else memory
                plan = Plan([x], stream=stream)
                value = change(memory)
                expected = value.flat()
                steptorch.Exchange(plan, [x], []).start([value])
                if stream:
                    self.assertEqual(plan.sizes, [None if value.shape == x.shape else [4 * len(expected)]])
                    self.assertEqual(x.flat()[:len(expected)], expected)
                else:
                    self.assertEqual(plan.started[0].data, [expected])

    def test_sources_that_are_being_sent(self):
        """A transposed one is written to the same place: it waits for what is being sent from there."""
        x = tensor(3, 3)
        plan = Plan([x])
        link = steptorch.Exchange(plan, [x], [])
        link.start([x])
        plan.started[0].sent = False
        plan.context.progress = lambda: setattr(plan.started[0], "sent", True)
        link.start([x])
        self.assertFalse(plan.started[0].sent)
        link.start([x.t()])  # the last one is sent
        plan.started[-1].sent = False
        plan.context.progress = lambda: setattr(plan.started[-1], "sent", True)
        link.start([x.t()])
        self.assertTrue(plan.started[-2].sent)

    def test_sources_after_a_wait(self):
        """They may not have gone to a rank whose answer was not waited for."""
        x = tensor(4)
        plan = Plan([x], [None], (False,))
        link = steptorch.Exchange(plan, [x], [tensor(4)])
        link.start()
        link.wait()
        first = plan.started[0]
        first.sent = False
        plan.context.progress = lambda: setattr(first, "sent", x.flat() == [0, 1, 2, 3])
        link.start([tensor(4, first=5)])
        self.assertTrue(first.sent)

    def test_wait(self):
        for stream in (False, True):
            for out in (tensor(3, 3), None):
                y = tensor(3, 3)
                link = steptorch.Exchange(Plan([], [y], stream=stream), [], [y])
                link.start()
                link.wait([y.t() if out is None else out])
                self.assertEqual((y.t() if out is None else out).flat(), list(range(9)))

    def test_server(self):
        y, x = tensor(3, 3), tensor(3, 3)
        batch = Batch(x)
        server = steptorch.Server(types.SimpleNamespace(recv=lambda: batch), [y])
        server.recv([x.t()])
        self.assertEqual(x.t().flat(), list(range(9)))
        server.respond([y.t()])
        self.assertEqual(batch.answer.data, [[0, 3, 6, 1, 4, 7, 2, 5, 8]])

    def test_what_has_no_place(self):
        x = tensor(3, 3)
        link = steptorch.Exchange(Plan([x], [x]), [x], [x])
        for value in (x[:, :2], tensor(3), tensor(1, 1), tensor(4, 3), tensor(3, 3, 1)):
            with self.assertRaisesRegex(stepaf.InvalidError, r"has no place in one of \(3, 3\)"):
                link.start([value])
        self.assertEqual((link.plan.started, x.flat()), ([], list(range(9))))


if __name__ == "__main__":
    job.main()
