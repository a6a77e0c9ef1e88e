# SPDX-License-Identifier: Apache-2.0
"""The example that decodes a model in PyTorch: its tokens are those of the reference, whatever moves
the tensors; and it reads model files that are not as they should be."""

import concurrent.futures
import faulthandler
import json
import os
import re
import runpy
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import unittest

import job
import stepaf

SOURCE = os.path.abspath(os.environ.get("top_srcdir", "."))
EXAMPLE = os.path.join(SOURCE, "examples", "python", "decode")
MODEL = os.path.join(SOURCE, "bench", "decode", "model", "qwen3-moe-tiny")
REFERENCE = os.path.join(MODEL, "reference.json")

try:
    import torch
except ImportError as error:
    torch = None
    REASON = f"no torch: {error}"
else:
    REASON = ""
    sys.path.insert(0, EXAMPLE)
    import checkpoint
    import launch
    import steps


def decode(*options):
    """Exit code and output of the example as users start it."""
    # Without -X dev: torch alone takes three times as long to import with it.
    done = subprocess.run([sys.executable, EXAMPLE, *options], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=job.LIMIT_S)
    return done.returncode, done.stdout


def be_rank(options, output):
    code = 1
    try:
        faulthandler.dump_traceback_later(job.LIMIT_S, exit=True)
        os.dup2(output, 1)
        os.dup2(output, 2)
        torch.set_num_threads(1)
        sys.argv = [EXAMPLE, *options]
        code = runpy.run_path(EXAMPLE)["main"]()
    except SystemExit as refused:
        code = refused.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def fork(rank, env, options, output, prepare=None):
    """Fork a rank, which calls prepare first."""
    pid = os.fork()
    if not pid:
        os.environ.update({name: str(value) for name, value in env.items()},
                          RANK=str(rank), STEPAF_LOCAL_RANK=str(rank))
        if prepare:
            prepare(rank)
        be_rank(options, output.fileno())
    return pid


def environment(procs):
    return {"WORLD_SIZE": procs, "STEPAF_LOCAL_SIZE": procs, "MASTER_PORT": launch._free_port(),
            "STEPAF_LOCAL_JOB": f"test-decode-{os.getpid()}"}


def forked(procs, *options):
    """The same of ranks that are forked here, where torch has been imported already, as a launcher's:
    the highest exit code."""
    with tempfile.TemporaryFile("w+") as output:
        env = environment(procs)
        pids = [fork(rank, env, options, output) for rank in range(procs)]
        code = max(job.end(pids), key=abs)
        output.seek(0)
        return code, output.read()


@unittest.skipUnless(torch, REASON)
class Decode(job.TestCase):
    def verify(self, procs, tokens, *options):
        code, said = forked(procs, "--verify", REFERENCE, "--tokens", str(tokens), *options)
        self.check(code, said, tokens)

    def check(self, code, said, tokens):
        self.assertEqual(code, 0, said)
        self.assertIn(f"reference       {10 * tokens} of {10 * tokens} tokens equal, in 10 of 10", said)
        for line in (r"tokens +%d, \d+ tokens/s" % (10 * tokens),
                     r"time per token +p50 [\d.]+ ms, p99 [\d.]+ ms",
                     r"exchange +-?[\d.]+ % of the time per token"):
            self.assertRegex(said, line)

    def test_without_a_launcher(self):
        code, said = decode("--procs", "2", "--verify", REFERENCE, "--tokens", "4")
        self.check(code, said, 4)

    def test_1a1f(self):
        self.verify(2, 64)

    def test_2a2f(self):
        for microbatches in ("2", "3"):
            with self.subTest(microbatches):
                self.verify(4, 8, "--microbatches", microbatches)

    def test_uneven(self):
        self.verify(3, 4, "--split", "attn=1,ffn=2", "--microbatches", "1")

    def test_gloo(self):
        if not torch.distributed.is_available():
            self.skipTest("this torch has no torch.distributed")
        for procs, tokens in ((2, 16), (4, 4)):
            with self.subTest(procs):
                self.verify(procs, tokens, "--exchange", "dist")

    def test_random_weights(self):
        code, said = forked(2, "--random-weights", "--hidden", "64", "--rows", "4", "--heads",
                            "4", "--kv-heads", "2", "--head-dim", "16", "--width", "32", "--tokens", "4")
        self.assertEqual(code, 0, said)
        self.assertIn("3 microbatches of 4 x 64 float32", said)

    def test_other_tokens_are_noticed(self):
        with open(REFERENCE, encoding="utf-8") as file:
            reference = json.load(file)
        reference["references"] = reference["references"][:2]
        reference["references"][1]["continuation_ids"][2] ^= 1
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(reference, file)
            file.flush()
            code, said = forked(2, "--verify", file.name, "--tokens", "4")
        self.assertEqual(code, 1, said)
        self.assertRegex(said, "reference       7 of 8 tokens equal, in 1 of 2")

    def test_what_is_refused(self):
        for options, sentence in (
                (["--model", "/nowhere"], "/nowhere/config.json"),
                (["--prompt-ids", "257"], "not below 257"),
                (["--split", "attn=2,ffn=2"], "not attn=A,ffn=F of 2 ranks")):
            code, said = forked(2, *options)
            self.assertEqual(code, 2, said)
            self.assertIn(sentence, said)

    @unittest.skipIf(job.NO_GPU, job.NO_GPU)
    def test_gpu(self):
        for options in ([], ["--graph"]):
            with self.subTest(options):
                code, said = decode("--procs", "2", "--verify", REFERENCE, "--tokens", "16", "--device",
                                    "cuda", *options)
                self.check(code, said, 16)


def await_return(rank):
    """The first attention rank goes on without the lost rank once, and then waits until another process
    asks for its place: on a busy machine, all might be over by then."""
    import exchange_replicas

    end_step = exchange_replicas.ReplicaExchange.finish

    def finish(exchange):
        ctx = exchange._context
        if rank == 0 and stepaf.MemberState.OUT in ctx.members():
            job.until(lambda: ctx.progress() or stepaf.MemberState.ASKS in ctx.members(), job.LIMIT_S)
        end_step(exchange)

    exchange_replicas.ReplicaExchange.finish = finish


@unittest.skipUnless(torch, REASON)
class Replicas(job.TestCase):
    """Each expert on two FFN ranks, one of which is killed in the middle of its work, and started again."""

    def decode(self, split, kill_after, tokens, *options, killed=2, **more):
        """The output of a job whose world rank killed is the first FFN rank."""
        with tempfile.TemporaryFile("w+") as output, tempfile.NamedTemporaryFile("r") as address:
            procs = sum(split)
            env = {**environment(procs), "STEPAF_SECRET": "of this test alone", **more}
            options = ["--split", "attn=%d,ffn=%d" % split, "--replicas", "2", "--verify", REFERENCE,
                       "--tokens", str(tokens), "--kill-after", str(kill_after), "--address-file",
                       address.name, *options]
            pids = [fork(rank, env, options, output, await_return) for rank in range(procs)]
            codes = job.end([pids.pop(killed)])
            if codes == [-signal.SIGKILL]:
                join = {"STEPAF_JOIN": address.read(), "STEPAF_RANK": killed, "STEPAF_SIZE": procs,
                        "STEPAF_INIT_TIMEOUT_US": 30000000}
                pids.append(fork(killed, {**env, **join}, options, output))
            codes += job.end(pids)
            output.seek(0)
            said = output.read()
            self.assertEqual(codes, [-signal.SIGKILL] + [0] * procs, said)
            return said

    def replaced(self, *options, **more):
        said = self.decode((2, 4), 40, 8, *options, **more)
        self.assertIn("reference       80 of 80 tokens equal, in 10 of 10 sequences", said)
        # Only what was on its way is asked for again: who is lost is not asked.
        self.assertRegex(said, r"replicas        2 of each part of the experts; [0-3] parts asked for again")
        self.assertRegex(said, r"FFN rank 0 +[1-9]\d* answers, [1-9]\d* since it is back\n")
        for other in (1, 2, 3):
            self.assertRegex(said, rf"FFN rank {other} +[1-9]\d* answers\n")
        answers = [int(n) for n in re.findall(r"FFN rank \d +(\d+) answers", said)]
        self.assertEqual(answers[0] + answers[2], answers[1] + answers[3], said)  # one for each part

    def test_replaced(self):
        self.replaced()

    def test_replaced_by_tcp(self):
        self.replaced("--microbatches", "1", STEPAF_TRANSPORTS="tcp", STEPAF_NET_IF="lo")

    def test_without_a_launcher(self):
        """Whoever comes too late to be asked is ended."""
        code, said = decode("--procs", "3", "--split", "attn=1,ffn=2", "--replicas", "2", "--kill-after", "9",
                            "--verify", REFERENCE, "--tokens", "4", "--quiet")
        self.assertEqual(code, 0, said)
        self.assertIn("reference       40 of 40 tokens equal, in 10 of 10 sequences", said)
        self.assertIn("replicas        2 of each part of the experts", said)

    def test_what_is_refused(self):
        for options, sentence in ((["--replicas", "2", "--split", "attn=1,ffn=1"], "cannot have each expert 2"),
                                  (["--replicas", "2", "--device", "cuda"], "takes --device cpu")):
            code, said = forked(2, *options)
            self.assertEqual(code, 2, said)
            self.assertIn(sentence, said)


@unittest.skipUnless(torch, REASON)
class Files(job.TestCase):
    def read(self, header, data=b"", length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
            file.write(struct.pack("<Q", len(text) if length is None else length) + text + data)
            file.flush()
            return checkpoint.File(file.name).read("t", (2,))

    def entry(self, **other):
        return {"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **other}}

    def test_good(self):
        data = struct.pack("<2f", 1.5, -2)
        self.assertEqual(self.read(self.entry(), data).tolist(), [1.5, -2])
        data = struct.pack("<2f", 1.5, -2)
        moved = self.entry(data_offsets=[1, 9])
        self.assertEqual(self.read(moved, b"\0" + data).tolist(), [1.5, -2])

    def test_bad(self):
        data = bytes(8)
        for wrong, sentence in (
                (self.entry(data_offsets=[0, 9]), "outside"), (self.entry(data_offsets=[4, 12]), "outside"),
                (self.entry(data_offsets=[-8, 0]), "outside"), (self.entry(data_offsets=[8, 0]), "outside"),
                (self.entry(data_offsets=[0, 4]), "4 bytes"), (self.entry(data_offsets=[0, True]), "outside"),
                (self.entry(data_offsets=None), "outside"), (self.entry(dtype="I64"), "of type"),
                (self.entry(dtype=[]), "of type"), (self.entry(shape=[1, 2]), "shape"), ({}, "no tensor"),
                ([], "not an object"), (b"{", "header"), (b"\xff", "header"), (b"[" * 100000, "header")):
            with self.subTest(wrong=str(wrong)[:60]):
                with self.assertRaisesRegex(checkpoint.ModelError, re.escape(sentence)):
                    self.read(wrong, data)
        for length in (1 << 63, 1 << 20):
            with self.assertRaisesRegex(checkpoint.ModelError, "no safetensors header"):
                self.read(self.entry(), data, length)


class Shared:
    """In the place of a GPU of two ranks: whoever is at work has it for himself. Steps have ten parts."""

    def __init__(self, attention, ffn):
        self.seconds = {True: attention, False: ffn}
        self.busy, self.beside = {True: False, False: False}, {True: [], False: []}
        self.gpu, self.barrier = threading.Lock(), threading.Barrier(2)

    def measure(self, attention):
        """steps.bare of that role's rank."""
        shared = self

        class Rank:
            def step(self, _exchange):
                shared.beside[attention].append(shared.busy[not attention])
                shared.busy[attention] = True
                for _ in range(10):
                    with shared.gpu:
                        time.sleep(shared.seconds[attention] / 10)
                shared.busy[attention] = False

            def reset(self):
                pass

        exchange = types.SimpleNamespace(push=(), pull=(), answer=(), n_attention=0, attention=attention,
                                         barrier=shared.barrier.wait)
        sizes = types.SimpleNamespace(bare=20, device=torch.device("cpu"), microbatches=3)
        return steps.bare(Rank(), exchange, sizes, False)


@unittest.skipUnless(torch, REASON)
class Ideal(job.TestCase):
    def test_ideal(self):
        """One microbatch takes turns; with more, the slower side sets the pace, but for the ends."""
        self.assertAlmostEqual(steps.ideal(3, 5, 4, 1), 8)
        self.assertAlmostEqual(steps.ideal(8, 8, 4, 2), 9)
        self.assertAlmostEqual(steps.ideal(4, 8, 4, 2), 8.5)

    def test_bare(self):
        """What ranks of one GPU take together is what the last of them takes, though one ends long before."""
        shared = Shared(attention=0.004, ffn=0.002)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            (attention, all_a), (ffn, all_f) = pool.map(shared.measure, (True, False))
        self.assertGreaterEqual(attention, 0.004)
        self.assertGreaterEqual(ffn, 0.002)
        self.assertGreater(max(all_a, all_f), 0.005)  # 0.006, but for how late one of them begins
        for role in (True, False):
            self.assertNotIn(True, shared.beside[role][steps.WARM:steps.WARM + 20])


if __name__ == "__main__":
    job.main()
