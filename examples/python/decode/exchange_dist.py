# SPDX-License-Identifier: Apache-2.0
"""The exchange of exchange.py by torch.distributed: NCCL on GPUs, gloo on CPUs, for comparison.

Pushes and answers go by process groups of their own. Operations of one NCCL communicator run one
after the other: with a single one, a push would wait for the answer to the microbatch before it.
"""

import os

import torch
import torch.distributed as dist


class DistExchange:
    """See StepafExchange."""

    def __init__(self, sizes, rank, world, n_attention):
        s = sizes
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29500")
        backend = "nccl" if s.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, rank=rank, world_size=world)
        self._up, self._down = dist.new_group(), dist.new_group()
        for group in (self._up, self._down):  # connect at once, not behind work on a stream
            dist.all_reduce(torch.zeros(1, device=s.device), group=group)
        self._sizes = s
        self.attention = rank < n_attention
        self.n_attention, self.n_ffn = n_attention, world - n_attention
        self.rank = rank if self.attention else rank - n_attention
        self._peers = range(n_attention, world) if self.attention else range(n_attention)
        self._works = [[] for _ in range(s.microbatches)]
        each = range(s.microbatches)

        def empty(width, dtype, rows=s.rows):
            return torch.zeros(rows, width, dtype=dtype, device=s.device)

        self.push = [[empty(*push) for push in s.pushes] for _ in each]
        self.pull = [[empty(s.hidden, s.dtype) for _ in self._peers] for _ in each]
        self.answer = [empty(s.hidden, s.dtype, n_attention * s.rows) for _ in each]
        self._received = [[[empty(*push) for push in s.pushes] for _ in self._peers] for _ in each]

    def _post(self, call, tensors, group):
        """Send or receive tensors, pairs of a rank and a tensor."""
        return dist.batch_isend_irecv([dist.P2POp(call, tensor, peer, group) for peer, tensor in tensors])

    def _wait(self, m):
        works, self._works[m] = self._works[m], []
        for work in works:
            work.wait()

    def start(self, m, _layer):
        """Send what is in push[m], and be ready for the answers."""
        pushes = [(peer, tensor) for peer in self._peers for tensor in self.push[m]]
        self._works[m] = self._post(dist.isend, pushes, self._up)
        self._works[m] += self._post(dist.irecv, list(zip(self._peers, self.pull[m])), self._down)

    def wait(self, m):
        """Wait for the answers, in pull[m]."""
        self._wait(m)

    def recv(self, m):
        """What each attention rank has pushed for microbatch m."""
        self._wait(m)  # the answer before, whose memory is written next
        pushes = [(peer, tensor) for peer, tensors in zip(self._peers, self._received[m])
                  for tensor in tensors]
        for work in self._post(dist.irecv, pushes, self._up):
            work.wait()
        return self._received[m]

    def respond(self, m):
        """Answer with what is in answer[m]."""
        parts = list(zip(self._peers, self.answer[m].split(self._sizes.rows)))
        self._works[m] = self._post(dist.isend, parts, self._down)

    def finish(self):
        """The end of a step: what is on its way is waited for, as a captured graph needs it."""
        for m in range(self._sizes.microbatches):
            self._wait(m)

    def check(self):
        """torch raises failures by itself."""

    def barrier(self):
        """Wait for all ranks."""
        dist.all_reduce(torch.zeros(1, device=self._sizes.device))
        if self._sizes.device.type == "cuda":
            torch.cuda.synchronize()

    def gather(self, numbers):
        """The numbers of all ranks, attention ranks first, at attention ranks; FFN ranks get None."""
        with torch.inference_mode(False):  # gloo writes from a thread that is not in this mode
            parts = [torch.zeros(self._sizes.report, dtype=torch.float64, device=self._sizes.device)
                     for _ in range(self.n_attention + self.n_ffn)]
        dist.all_gather(parts, numbers.to(self._sizes.device))
        return torch.stack(parts).cpu() if self.attention else None

    def close(self):
        """Leave the job."""
        dist.destroy_process_group()
