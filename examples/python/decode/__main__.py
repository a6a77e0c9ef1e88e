# SPDX-License-Identifier: Apache-2.0
"""Decode a Qwen3-MoE model with attention on some ranks and its experts on others, in PyTorch.

    python examples/python/decode --procs 4 --verify bench/decode/model/qwen3-moe-tiny/reference.json
    mpirun -n 4 python examples/python/decode --prompt "In the beginning"
    python examples/python/decode --procs 6 --split attn=2,ffn=4 --replicas 2 --kill-after 100
    python examples/python/decode --procs 2 --device cuda --graph --random-weights

All ranks get the same options. See docs/decode.md.
"""

import argparse
import os
import sys
from dataclasses import dataclass
from typing import Any

import launch

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3, "bench", "decode",
                     "model", "qwen3-moe-tiny")
TEXTS = ["In the beginning", "The program", "And he said unto them,", ":hacker: n."]


def count(text):
    """A positive integer, for argparse."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def options():
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="decode", description=(__doc__ or "").split("\n", 1)[0])
    add = parser.add_argument
    add("--model", metavar="DIR", default=MODEL, help="a Hugging Face directory of a Qwen3-MoE model")
    add("--prompt", action="append", metavar="TEXT", help="what to go on from; may be repeated")
    add("--prompt-ids", action="append", metavar="IDS", help="the same as ids, such as 73,110")
    add("--tokens", type=count, help="tokens for each sequence (64, or as many as --verify has)")
    add("--verify", metavar="FILE", help="prompts of a reference.json; the tokens must be equal to its")
    add("--split", metavar="attn=A,ffn=F", default=os.environ.get("STEPAF_SPLIT"),
        help="roles of the ranks, attention ranks first (half and half)")
    add("--procs", type=count, metavar="N", help="start N ranks here, without a launcher")
    add("--microbatches", type=count, default=3, metavar="M", help="microbatches of each attention rank")
    add("--replicas", type=count, default=1, metavar="R",
        help="put each expert on R FFN ranks, which may be lost, and return")
    add("--kill-after", type=count, metavar="N", help="the first FFN rank ends by SIGKILL in its batch N")
    add("--address-file", metavar="FILE",
        help="with --replicas: write there what STEPAF_JOIN is for a process that takes a lost rank's place")
    add("--exchange", choices=("stepaf", "dist"), default="stepaf",
        help="what moves tensors: the package, or torch.distributed (NCCL, or gloo on CPUs)")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--graph", action="store_true", help="run each step as one CUDA graph")
    add("--dtype", choices=("float32", "bfloat16"), help="(float32; bfloat16 of random weights on GPUs)")
    add("--quiet", action="store_true", help="figures only, no texts")
    random = parser.add_argument_group("random weights, for a model of any size")
    random.add_argument("--random-weights", action="store_true")
    for name, size, what in (
            ("rows", 128, "sequences of a microbatch"), ("hidden", 7168, "hidden size"),
            ("layers", 4, ""), ("heads", 64, "query heads"), ("kv-heads", 8, "key-value heads"),
            ("head-dim", 128, ""), ("experts", 8, ""), ("top-k", 2, "experts of each token"),
            ("width", 2048, "of an expert"), ("vocab", 1024, "")):
        random.add_argument(f"--{name}", type=count, default=size, help=f"{what} ({size})".strip())
    return parser


@dataclass
class Sizes:
    """Of an exchange: the same at all ranks."""

    microbatches: int
    rows: int
    hidden: int
    top_k: int
    dtype: Any
    device: Any
    pushes: Any
    report: int
    bare: int


@dataclass
class Job:
    """What is to be decoded."""

    config: Any
    load: Any
    prompts: Any
    references: Any
    tokens: int
    tokenizer: Any
    quiet: bool
    n_attention: int
    n_ffn: int
    replicas: int
    sizes: Any = None


def make_job(args, n_attention, n_ffn, device):
    """The job that the options describe."""
    import torch

    from checkpoint import Checkpoint, ModelError, Random
    from config import Config, read_config
    from report import BARE, read_references
    from text import Tokenizer

    use = args.dtype or ("bfloat16" if args.random_weights and device.type == "cuda" else "float32")
    dtype = getattr(torch, use)
    references = read_references(args.verify) if args.verify else None
    if args.random_weights:
        config = Config(hidden=args.hidden, layers=args.layers, heads=args.heads, kv_heads=args.kv_heads,
                        head_dim=args.head_dim, experts=args.experts, top_k=args.top_k,
                        width=args.width, vocab=args.vocab, positions=1 << 20)
        load, tokenizer = Random(device, dtype, 1), Tokenizer(None)
        many = args.rows * args.microbatches * n_attention
        prompts = [[s % args.vocab] for s in range(many)]
    else:
        config = read_config(args.model)
        load, tokenizer = Checkpoint(args.model, device, dtype), Tokenizer(args.model)
        if references:
            prompts = [list(prompt) for prompt, _ in references]
        else:
            prompts = [[int(number) for number in ids.split(",")] for ids in args.prompt_ids or []]
            texts = args.prompt or ([] if prompts else TEXTS)
            prompts += [tokenizer.encode(text) for text in texts]
    tokens = args.tokens or (len(references[0][1]) if references else 64)
    if references and tokens > min(len(ids) for _, ids in references):
        raise ModelError(f"{args.verify} has fewer than {tokens} tokens")
    longest = max(map(len, prompts))
    if min(map(len, prompts)) == 0 or longest + tokens > config.positions:
        raise ModelError(f"prompt and tokens have to be 1 to {config.positions}")
    if any(not 0 <= number < config.vocab for ids in prompts for number in ids):
        raise ModelError(f"a prompt has an id that is not below {config.vocab}")
    if n_ffn % args.replicas:
        raise ModelError(f"{n_ffn} FFN ranks cannot have each expert {args.replicas} times")
    if config.experts < n_ffn // args.replicas:
        raise ModelError(f"{config.experts} experts cannot be divided among {n_ffn} FFN ranks")
    share = n_attention * args.microbatches
    rows = -(-len(prompts) // share)
    job = Job(config, load, prompts, references, tokens, tokenizer, args.quiet, n_attention, n_ffn,
              args.replicas)
    pushes = [(config.hidden, dtype), (config.top_k, torch.int32), (config.top_k, torch.float32)]
    job.sizes = Sizes(args.microbatches, rows, config.hidden, config.top_k, dtype, device, pushes,
                      BARE + tokens + args.microbatches * rows * tokens, min(20, longest + tokens - 1))
    return job


def make_rank(job, exchange):
    """The role's part of the model, and its sequences."""
    from model import Attention, Experts, Microbatch
    from steps import AttentionRank, FfnRank

    s = job.sizes
    if not exchange.attention:
        parts = job.n_ffn // job.replicas
        model = Experts(job.load, job.config, exchange.rank % parts, parts, s.device)
        return FfnRank(model, s.microbatches)
    length = max(map(len, job.prompts)) + job.tokens - 1
    model = Attention(job.load, job.config, length, s.device)
    batches = []
    for m in range(s.microbatches):
        # Sequence s is of rank s mod A and microbatch s / A mod M; what is missing is filled up.
        first, stride = m * job.n_attention + exchange.rank, job.n_attention * s.microbatches
        prompts = job.prompts[first::stride]
        prompts = prompts + [[0]] * (s.rows - len(prompts))
        batches.append(Microbatch(job.config, prompts, length, s.device, s.dtype))
    return AttentionRank(model, batches)


def numbers_of(job, rank, attention, times, bare):
    """What a rank reports: a step without the exchange, alone and together, then times and tokens."""
    import torch
    from report import BARE

    out = torch.zeros(job.sizes.report, dtype=torch.float64)
    out[:BARE] = torch.tensor(bare)
    out[BARE:BARE + job.tokens] = torch.tensor(times[-job.tokens:])
    if attention:
        rows = [ids[length:length + job.tokens] for batch in rank.batches
                for ids, length in zip(batch.ids.cpu(), batch.prompt_length.tolist())]
        out[BARE + job.tokens:] = torch.cat(rows)
    return out


def show_job(job, how):
    """The first line of the output."""
    import torch

    print(f"ranks           {job.n_attention} attention, {job.n_ffn} FFN, {job.sizes.microbatches} "
          f"microbatches of {job.sizes.rows} x {job.sizes.hidden} {str(job.sizes.dtype)[6:]}: "
          f"{job.sizes.device.type}, {how}, torch {torch.__version__}")


def decode(job, exchange, graph):
    """Decode; returns the exit code."""
    import torch
    from report import BARE, show
    from steps import Runner, bare, run

    rank = make_rank(job, exchange)
    exchange.barrier()
    runner = Runner(rank, exchange, job.sizes.device, graph)
    times = run(runner, exchange, max(map(len, job.prompts)) + job.tokens - 1)
    exchange.barrier()
    runner.close()
    numbers = numbers_of(job, rank, exchange.attention, times, (0, 0))
    rank.reset()
    numbers[:BARE] = torch.tensor(bare(rank, exchange, job.sizes, graph))
    table = exchange.gather(numbers)
    good = True
    if table is not None and exchange.rank == 0:
        show_job(job, f"{'graph' if graph else 'eager'}, {type(exchange).__name__}")
        good = show(table, job)
    sys.stdout.flush()
    return 0 if good else 1


def decode_replicas(job, exchange, args):
    """The same with FFN ranks that may be lost, and return."""
    from report import show, show_replicas
    from steps import Runner, run

    rank = make_rank(job, exchange)
    exchange.join(args.address_file)  # with weights: from then on it is asked
    if not exchange.attention:
        is_first = exchange.rank == 0 and "STEPAF_JOIN" not in os.environ
        exchange.serve(rank.model, args.kill_after if is_first else None)
        return 0
    runner = Runner(rank, exchange, job.sizes.device, graph=False)
    times = run(runner, exchange, max(map(len, job.prompts)) + job.tokens - 1)
    living = exchange.living()
    table = exchange.gather(numbers_of(job, rank, True, times, (0, 0)))
    if exchange.rank:
        return 0
    show_job(job, type(exchange).__name__)
    good = show(table, job)
    show_replicas(exchange, living, job.replicas)
    return 0 if good else 1


def be_rank(args, rank, world_size):
    """This process's part; returns the exit code."""
    import torch

    n_attention = launch.n_attention(args.split, world_size)
    os.environ["STEPAF_SPLIT"] = f"attn={n_attention},ffn={world_size - n_attention}"
    device = torch.device(args.device)
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count())
        torch.cuda.set_stream(torch.cuda.Stream())
    with torch.inference_mode():
        job = make_job(args, n_attention, world_size - n_attention, device)
        if args.replicas > 1:
            from exchange_replicas import ReplicaExchange
            exchange = ReplicaExchange(job.sizes, args.replicas)
        elif args.exchange == "stepaf":
            from exchange import StepafExchange
            exchange = StepafExchange(job.sizes)
        else:
            from exchange_dist import DistExchange
            exchange = DistExchange(job.sizes, rank, world_size, n_attention)
        try:
            if args.replicas > 1:
                return decode_replicas(job, exchange, args)
            return decode(job, exchange, args.graph)
        finally:
            exchange.close()


def main():
    """The program; returns the exit code."""
    parser = options()
    args = parser.parse_args()
    if args.graph and args.device != "cuda":
        parser.error("--graph takes --device cuda")
    if args.replicas > 1 and (args.device != "cpu" or args.exchange != "stepaf"):
        parser.error("--replicas takes --device cpu and --exchange stepaf")
    place = launch.world()
    try:
        if place is not None:
            return be_rank(args, *place)
        if not args.procs or args.procs < 2:
            parser.error("no launcher has started this: use mpirun -n N, torchrun, or --procs N with N >= 2")
        returning = launch.n_attention(args.split, args.procs) if args.replicas > 1 else args.procs
        return launch.start(args.procs, returning)
    except ValueError as error:
        if place is None or place[0] == 0:
            print(f"decode: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
