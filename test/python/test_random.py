# SPDX-License-Identifier: Apache-2.0
"""Random schedules: every byte of every tensor follows from (seed, rank, plan, ordinal), so both sides
know it without being told. What is free (waits, holds, how memory is read) is drawn besides.

By hand: run.sh test_random.py OPERATIONS [SEED]
"""

import gc
import random
import sys

import job
import stepaf

PLANS, DEPTH, MAX_BYTES = 6, 4, 4096
DTYPES = ("u8", "i16", "f16", "bf16", "f32", "fp8", "f64")


class Model:
    """Keys, plans and operations, from a seed."""

    def __init__(self, seed, n_ffn):
        self.seed, self.n_ffn = seed, n_ffn
        dice = random.Random(seed)
        self.plans = [self._plan(dice, number) for number in range(PLANS)]

    def _plan(self, dice, number):
        depth = dice.randint(1, DEPTH)
        plan = {
            "depth": depth,
            "scatter": dice.random() < 0.35,
            "push": [self._key(dice, 100 * number + i, depth) for i in range(dice.randint(1, 3))],
            "pull": [self._key(dice, 100 * number + 50 + i, depth)
                     for i in range(dice.randint(0, 2))],
            "registered": dice.random() < 0.3,
        }
        return plan

    def _key(self, dice, number, depth):
        dtype = dice.choice(DTYPES)
        row = dice.randint(1, 40)
        rows = max(1, int(MAX_BYTES ** dice.random()) // row)
        return {"number": number, "dtype": dtype, "shape": (rows, row), "depth": depth}

    def rows(self, key, attn, ffn, ordinal):
        """Rows of a tensor in an operation: often all, sometimes none."""
        dice = random.Random(f"{self.seed} {key['number']} {attn} {ffn} {ordinal}")
        return key["shape"][0] if dice.random() < 0.5 else dice.randint(0, key["shape"][0])

    def data(self, key, attn, ffn, ordinal, rows, itemsize):
        n = rows * key["shape"][1] * itemsize
        return random.Random(f"{key['number']} {attn} {ffn} {ordinal}").getrandbits(
            8 * n).to_bytes(n, "little") if n else b""

    def skips(self, plan, attn, ffn, ordinal):
        """Whether a scattered operation leaves this FFN rank out."""
        if not plan["scatter"]:
            return False
        return all(self.rows(key, attn, ffn, ordinal) == 0 for key in plan["push"])

    def drops(self, number, attn, ffn, ordinal):
        """Whether the FFN rank releases without an answer."""
        return bool(self.plans[number]["pull"]) and \
            random.Random(f"drop {number} {attn} {ffn} {ordinal}").random() < 0.03


def write(tensor, data):
    if data:
        with memoryview(tensor) as view, view.cast("B") as flat:
            flat[:len(data)] = data


def read(tensor, dice):
    if not tensor.nbytes:
        return b""
    if dice.random() < 0.2:
        return bytes(memoryview(stepaf.as_tensor(tensor)))
    with memoryview(tensor) as view:
        return view.tobytes()


def declare(ctx, model):
    for plan in model.plans:
        for key in plan["push"]:
            ctx.push_key(key["number"], key["shape"], key["dtype"], depth=key["depth"])
        for key in plan["pull"]:
            ctx.pull_key(key["number"], key["shape"], key["dtype"], depth=key["depth"])


def place(ctx, key, slots, registered):
    """Memory for so many tensors of a key."""
    shape = (slots,) + key["shape"]
    if not registered:
        return ctx.alloc(shape, key["dtype"])
    size = stepaf._core.DTYPE_BYTES[key["dtype"]]
    buffer = bytearray(slots * key["shape"][0] * key["shape"][1] * size)
    return stepaf.view(ctx.register(buffer), shape, key["dtype"])


class Attention:
    def __init__(self, ctx, model, seed):
        self.ctx, self.model, self.dice = ctx, model, random.Random(f"{seed} {ctx.world_rank}")
        self.plans, self.sources, self.targets = [], [], []
        for plan in model.plans:
            copies = model.n_ffn if plan["scatter"] else 1
            source = [place(ctx, key, plan["depth"] * copies, plan["registered"])
                      for key in plan["push"]]
            target = [[place(ctx, key, plan["depth"], False) for key in plan["pull"]]
                      for _ in range(model.n_ffn)]
            pulls = [(key["number"], memory[0])
                     for each in target for key, memory in zip(plan["pull"], each)]
            self.plans.append(ctx.plan([(key["number"], memory[0]) for key, memory
                                        in zip(plan["push"], source)], pulls,
                                       scatter=plan["scatter"]))
            self.sources.append(source)
            self.targets.append(target)
        self.flying, self.last = [], {}
        self.ordinals = [0] * PLANS

    def start(self, number):
        plan, ordinal = self.model.plans[number], self.ordinals[number]
        slot = ordinal % plan["depth"]
        while any(n == number and o % plan["depth"] == slot for n, o, _ in self.flying):
            self.finish(0)  # its sources are about to be overwritten
        last = self.last.get((number, slot))
        while last is not None and not last.sent:
            self.ctx.progress()
        copies = self.model.n_ffn if plan["scatter"] else 1
        push = []
        for f in range(copies):
            ffn = f if plan["scatter"] else -1
            for key, memory in zip(plan["push"], self.sources[number]):
                rows = self.model.rows(key, self.ctx.rank, ffn, ordinal)
                tensor = memory[slot * copies + f][:rows]
                size = stepaf._core.DTYPE_BYTES[key["dtype"]]
                write(tensor, self.model.data(key, self.ctx.rank, ffn, ordinal, rows, size))
                push.append(tensor if rows or self.dice.random() < 0.5 else None)
        request = self.plans[number].start(push, wait=True)
        self.ordinals[number] += 1
        self.last[number, slot] = request
        self.flying.append((number, ordinal, request))

    def finish(self, index):
        number, ordinal, request = self.flying.pop(index)
        plan, way = self.model.plans[number], self.dice.random()
        canceled = any(self.model.drops(number, self.ctx.rank, f, ordinal) and
                       not self.model.skips(plan, self.ctx.rank, f, ordinal)
                       for f in range(self.model.n_ffn))
        try:
            if way < 0.3:
                while not request.test():
                    self.ctx.progress()
            elif way < 0.5:
                stepaf.wait_any([request])
            else:
                request.wait()
            assert not canceled
        except stepaf.CanceledError:
            assert canceled
        for f in range(self.model.n_ffn):
            skipped = self.model.skips(plan, self.ctx.rank, f, ordinal)
            if not skipped and self.model.drops(number, self.ctx.rank, f, ordinal):
                continue
            for i, key in enumerate(plan["pull"]):
                tensor = request.tensor(f * len(plan["pull"]) + i)
                if canceled and tensor is None:
                    continue  # the result was known before this rank has answered
                rows = 0 if skipped else self.model.rows(key, self.ctx.rank, f, ordinal)
                size = stepaf._core.DTYPE_BYTES[key["dtype"]]
                assert read(tensor, self.dice) == self.model.data(
                    key, self.ctx.rank, f, ordinal, rows, size), (number, ordinal, f, i)

    def run(self, numbers):
        for number in numbers:
            self.start(number)
            while len(self.flying) > self.dice.randint(0, 8):
                self.finish(self.dice.randrange(len(self.flying)))
        while self.flying:
            self.finish(0)


class Ffn:
    def __init__(self, ctx, model, seed):
        self.ctx, self.model, self.dice = ctx, model, random.Random(f"{seed} {ctx.world_rank}")
        self.memory = [[place(ctx, key, DEPTH * ctx.n_attention, plan["registered"])
                        for key in plan["pull"]] for plan in model.plans]
        self.requests = {}

    def check(self, batch, number):
        plan = self.model.plans[number]
        ffn = self.ctx.rank if plan["scatter"] else -1
        assert len(batch) == len(plan["push"])
        for key, tensor in zip(plan["push"], batch):
            rows = self.model.rows(key, batch.attention_rank, ffn, batch.sequence)
            size = stepaf._core.DTYPE_BYTES[key["dtype"]]
            assert tensor.key == key["number"] and tensor.shape == (rows, key["shape"][1])
            assert read(tensor, self.dice) == self.model.data(
                key, batch.attention_rank, ffn, batch.sequence, rows, size), (number, ffn)

    def answer(self, batch):
        number, attn, ordinal = batch.plan, batch.attention_rank, batch.sequence
        plan = self.model.plans[number]
        self.check(batch, number)
        if not plan["pull"] or self.model.drops(number, attn, self.ctx.rank, ordinal):
            if self.dice.random() < 0.5:
                batch.release()
            return  # else its end does
        slot = attn * DEPTH + ordinal % plan["depth"]
        before = self.requests.pop((number, slot), None)
        if before is not None and not before.sent:
            before.wait()
        answers = []
        for key, memory in zip(plan["pull"], self.memory[number]):
            rows = self.model.rows(key, attn, self.ctx.rank, ordinal)
            size = stepaf._core.DTYPE_BYTES[key["dtype"]]
            write(memory[slot], self.model.data(key, attn, self.ctx.rank, ordinal, rows, size))
            answers.append(memory[slot][:rows])
        release = self.dice.random() < 0.7
        self.requests[number, slot] = batch.respond(answers, release=release)
        if not release and self.dice.random() < 0.5:
            self.check(batch, number)
            batch.release()

    def run(self, count):
        held = []
        while count or held:
            if count and (not held or self.dice.random() < 0.6):
                try:
                    batches = [self.ctx.recv(0)] if self.dice.random() < 0.3 else \
                        self.ctx.recv_many(self.dice.randint(1, 5), 0.002 if held else None)
                except stepaf.TimeoutError:
                    batches = []
                held += batches
                count -= len(batches)
                batches = None  # a batch that is in no list goes back
            if held:
                self.answer(held.pop(self.dice.randrange(len(held))))


def play(ctx, model, totals, count, seed):
    declare(ctx, model)
    is_ffn = ctx.role == stepaf.Role.FFN
    side = (Ffn if is_ffn else Attention)(ctx, model, seed)
    ctx.commit()
    if not is_ffn:
        side.run(choices(seed, ctx.rank, count))
    else:
        side.run(totals[ctx.rank])
    ctx.barrier()
    counters = ctx.counters()
    assert counters["dropped_malformed"] == 0 and counters["peers_lost"] == 0, counters
    if not is_ffn:
        assert counters["operations_started"] == count
    gc.collect()
    assert ctx.exports == 0


def choices(seed, attn, count):
    """Which plan each operation of an attention rank is of."""
    dice = random.Random(f"plans {seed} {attn}")
    return [dice.randrange(PLANS) for _ in range(count)]


def expected(model, n_attn, count, seed):
    """How many batches come to each FFN rank."""
    totals = [0] * model.n_ffn
    for attn in range(n_attn):
        ordinals = [0] * PLANS
        for number in choices(seed, attn, count):
            for ffn in range(model.n_ffn):
                totals[ffn] += not model.skips(model.plans[number], attn, ffn, ordinals[number])
            ordinals[number] += 1
    return totals


class RandomSchedule(job.TestCase):
    COUNT, SEED = job.few(1200, 200), 11

    def play(self, attn, ffn, count, seed, **options):
        model = Model(seed, ffn)
        totals = expected(model, attn, count, seed)  # before ranks wait for each other
        self.run_job(lambda ctx: play(ctx, model, totals, count, seed), attn, ffn, **options)

    def test_1a1f(self):
        self.play(1, 1, self.COUNT, self.SEED)

    def test_2a2f(self):
        self.play(2, 2, self.COUNT // 2, self.SEED + 1)

    def test_1a2f_with_a_thread(self):
        self.play(1, 2, self.COUNT // 4, self.SEED + 2, params={"progress": "thread"})


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].isdigit():
        RandomSchedule.COUNT = int(sys.argv[1])
        RandomSchedule.SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 11
        del sys.argv[1:]
    job.main()
