# SPDX-License-Identifier: Apache-2.0
"""An exchange that outlives FFN ranks: each part of the experts is on several of them.

FFN rank f has part f mod P, of P parts. For each part an attention rank asks one FFN rank that lives,
in turn; if that dies before it has answered, another one. An FFN rank takes batches as they come. At
the end of each step all ranks meet: then nothing is in flight, and they commit where a rank is to be
left behind, or one is back.
"""

import os
import signal

import torch

import stepaf
from stepaf import MemberState
from stepaf.torch import empty, from_tensor

WISH, REPORT = 1, 3  # what attention ranks tell each other: push keys, the pull keys are the next ones
LAYER, HIDDEN, IDS, WEIGHTS, SUM = 8, 9, 10, 11, 12  # + 8 * microbatch


class ReplicaExchange:
    """Of an attention rank it has the methods of StepafExchange; an FFN rank only serves."""

    def __init__(self, sizes, replicas):
        self._sizes = s = sizes
        self._context = ctx = stepaf.Context()
        self.attention = ctx.role == stepaf.Role.ATTENTION
        self.rank, self.n_attention, self.n_ffn = ctx.rank, ctx.n_attention, ctx.n_ffn
        self.parts = ctx.n_ffn // replicas
        self.push, self.pull = [], [None] * s.microbatches
        self._layer, self._sums, self._plans, self._tables = [], [], [], {}
        for m in range(s.microbatches):
            keys = [ctx.push_key(LAYER + 8 * m, (1, 1), torch.int64, depth=1)]
            keys += [ctx.push_key(HIDDEN + i + 8 * m, (s.rows, width), dtype, depth=1)
                     for i, (width, dtype) in enumerate(s.pushes)]
            self._plan(keys, ctx.pull_key(SUM + 8 * m, (s.rows, s.hidden), s.dtype, depth=1))
        for key, width in ((WISH, 1), (REPORT, s.report)):
            self._plan_table(ctx.push_key(key, (1, width), torch.float64, depth=1),
                             ctx.pull_key(key + 1, (self.n_attention, width), torch.float64, depth=1))
        self._requests = [None] * s.microbatches
        self._asked = [[0] * self.parts for _ in range(s.microbatches)]
        self._turn = self.rank
        self.again = 0  # parts that were asked for again
        self.answers = [0] * self.n_ffn  # of each FFN rank
        self.back = {}  # FFN rank: its answers before it was back

    def _plan(self, keys, sum_key):
        s, ctx = self._sizes, self._context
        if not self.attention:  # each attention rank's answer has a place of its own
            self._sums.append([empty(ctx, (s.rows, s.hidden), s.dtype) for _ in range(self.n_attention)])
            return
        layer = empty(ctx, (1, 1), torch.int64)
        push = [empty(ctx, (s.rows, width), dtype) for width, dtype in s.pushes]
        sums = [empty(ctx, (s.rows, s.hidden), s.dtype) for _ in range(self.n_ffn)]
        # Who gets nothing takes no part: a scattered operation reaches those who are asked alone.
        self._plans.append(ctx.plan(list(zip(keys, [layer, *push])), [(sum_key, each) for each in sums],
                                    scatter=True))
        self._layer.append(layer)
        self.push.append(push)
        self._sums.append(sums)

    def _plan_table(self, row_key, table_key):
        ctx, (_, width) = self._context, row_key.shape
        tables = [empty(ctx, (self.n_attention, width), torch.float64)
                  for _ in range(self.n_ffn if self.attention else 1)]
        row = plan = None
        if self.attention:
            row = empty(ctx, (1, width), torch.float64)
            plan = ctx.plan({row_key: row}, [(table_key, table) for table in tables])
        self._tables[int(row_key)] = row, tables, plan

    def join(self, address_file=None):
        """The first commit. A process that returns, by STEPAF_JOIN, is admitted by one of the others'."""
        self._context.commit()
        if address_file and self.attention and self.rank == 0:
            with open(address_file, "w", encoding="ascii") as file:
                file.write(self._context.members_address())

    def living(self):
        """The FFN ranks that can be asked."""
        return self._ffn_ranks(MemberState.IN, MemberState.SLOW)

    def _ffn_ranks(self, *states):
        ctx, found = self._context, self._context.members()
        return [f for f in range(self.n_ffn) if found[ctx.world_rank_of(stepaf.Group.FFN, f)] in states]

    # ---- attention ranks

    def start(self, m, layer):
        """Send what is in push[m]."""
        self._layer[m].fill_(layer)
        self._ask(m, range(self.parts))

    def _ask(self, m, parts):
        """Ask an FFN rank that lives for each of these parts."""
        living = self.living()
        push = [[None] * 4 for _ in range(self.n_ffn)]
        self._turn += 1
        for part in parts:
            homes = [f for f in living if f % self.parts == part]
            if not homes:
                raise RuntimeError(f"part {part} of the experts is on no FFN rank that lives")
            f = self._asked[m][part] = homes[self._turn % len(homes)]
            push[f] = [self._layer[m], *self.push[m]]
        # One that has died since is left out, and found not to have answered.
        self._requests[m] = self._plans[m].start(sum(push, []), wait=True, skip_lost=True)

    def wait(self, m):
        """Wait for the answers: pull[m] has a tensor for each part, in order, whoever has sent it."""
        missing = range(self.parts)
        while missing:
            missing = [part for part in missing if not self._answered(m, self._asked[m][part])]
            if missing:
                self.again += len(missing)
                self._ask(m, missing)
        self.pull[m] = [self._sums[m][f] for f in self._asked[m]]

    def _answered(self, m, f):
        came = has_answered(self._requests[m], f)
        self.answers[f] += came
        return came

    def finish(self):
        """The end of a step: if any attention rank knows of one who is lost, or asks, all commit."""
        wish = bool(self._ffn_ranks(MemberState.LOST, MemberState.ASKS))
        if self._share(WISH, wish).any():
            before = self.living()
            self._commit()
            self.back.update((f, self.answers[f]) for f in self.living() if f not in before)

    def _share(self, key, numbers):
        """A row of each attention rank. All FFN ranks answer with the same."""
        row, tables, plan = self._tables[key]
        row[0] = numbers
        request = plan.start(wait=True, skip_lost=True)
        came = [has_answered(request, f) for f in range(self.n_ffn)]
        if not any(came):
            raise RuntimeError("no FFN rank lives")
        return tables[came.index(True)]

    def gather(self, numbers):
        """The numbers of all attention ranks. With this, FFN ranks end."""
        return self._share(REPORT, numbers)

    def check(self):
        """Whatever fails raises by itself."""

    # ---- FFN ranks

    def serve(self, experts, kill_after):
        """Answer what comes, in any order, until attention ranks report."""
        n, rows = 0, []
        while True:
            batch = self._context.recv()
            key = batch[0].key
            if key < LAYER:  # the end of a step, or of all: when all attention ranks are there
                rows.append(batch)
                if len(rows) == self.n_attention:
                    table = self._answer_rows(rows, self._tables[key][1][0])
                    if key == REPORT:
                        return
                    if table.any():
                        self._commit()
                    rows = []
                continue
            n += 1
            if n == kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
            layer, *tensors = map(from_tensor, batch)
            out = self._sums[(key - LAYER) // 8][batch.attention_rank]
            experts.layer(int(layer), *tensors, out)
            batch.respond(out)

    def _answer_rows(self, batches, table):
        for batch in batches:
            table[batch.attention_rank] = from_tensor(batch[0])[0]
        for batch in batches:
            batch.respond(table).wait()
        return table

    # ---- both

    def _commit(self):
        try:
            self._context.commit(lost="leave", returning="admit")
        except stepaf.StateError:
            pass  # who has asked is gone: nothing has changed

    def close(self):
        """Leave the job."""
        self._context.close()


def has_answered(request, f):
    """Wait for FFN rank f's answer; False if it is lost."""
    try:
        request.wait_peer(f)
    except stepaf.PeerLostError:
        return False
    return True
