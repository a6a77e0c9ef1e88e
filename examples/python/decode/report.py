# SPDX-License-Identifier: Apache-2.0
"""What a run comes to: texts, times, and whether the tokens are those of a reference."""

from checkpoint import ModelError, read_json
from steps import ideal

BARE = 2  # numbers of a rank before its times: a step without the exchange, alone and together


def read_references(path):
    """Pairs of prompt and continuation, as ids, of a reference file."""
    found = read_json(path).get("references")
    try:
        pairs = [(each["prompt_ids"], each["continuation_ids"]) for each in found]
        if all(ids and all(isinstance(number, int) and number >= 0 for number in ids)
               for pair in pairs for ids in pair) and pairs:
            return pairs
    except (TypeError, LookupError):
        pass
    raise ModelError(f"{path}: no references with prompt_ids and continuation_ids")


def quantile(values, share):
    """The value that this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def show_times(table, job):
    """Tokens and times of all attention ranks, and the exchange's share."""
    n, tokens = job.n_attention, job.tokens
    times = [second for row in table[:n] for second in row[BARE:BARE + tokens].tolist()]
    spent = max(row[BARE:BARE + tokens].sum().item() for row in table[:n])
    p50 = quantile(times, 0.5)
    print(f"tokens          {len(job.prompts) * tokens}, {len(job.prompts) * tokens / spent:.0f} tokens/s")
    print(f"time per token  p50 {1e3 * p50:.3f} ms, p99 {1e3 * quantile(times, 0.99):.3f} ms")
    if job.replicas > 1:  # FFN ranks that come and go are not measured
        return
    attention, ffn, together = (part.max().item() for part in (table[:n, 0], table[n:, 0], table[:, 1]))
    ordered = ideal(attention, ffn, job.config.layers, job.sizes.microbatches)
    least = max(ordered, together)
    print(f"without exchange {1e3 * least:.3f} ms: attention {1e3 * attention:.3f} ms and FFN {1e3 * ffn:.3f} ms "
          f"alone, in order {1e3 * ordered:.3f} ms; all at once {1e3 * together:.3f} ms")
    print(f"exchange        {100 * (p50 - least) / p50:.1f} % of the time per token, at the median")


def show_replicas(exchange, living, replicas):
    """Which FFN ranks have answered this rank, and which are lost or have returned."""
    print(f"replicas        {replicas} of each part of the experts; {exchange.again} parts asked for again")
    for f, answers in enumerate(exchange.answers):
        back = f", {answers - exchange.back[f]} since it is back" if f in exchange.back else ""
        print(f"FFN rank {f:<6} {answers} answers{back}{'' if f in living else ', lost'}")


def show(table, job):
    """Print all; False if the tokens are not those of the reference."""
    n, tokens, rows = job.n_attention, job.tokens, job.sizes.rows
    equal = whole = 0
    for s in range(len(job.prompts)):
        place = (s // n % job.sizes.microbatches) * rows + s // n // job.sizes.microbatches
        begin = BARE + tokens + place * tokens
        ids = [int(number) for number in table[s % n, begin:begin + tokens]]
        if not job.quiet:
            print(f"[{s}] {job.tokenizer.decode(job.prompts[s])}|{job.tokenizer.decode(ids)}")
        if job.references:
            wanted = job.references[s % len(job.references)][1][:tokens]
            same = sum(a == b for a, b in zip(ids, wanted))
            equal += same
            whole += same == tokens
            if same < tokens and not job.quiet:
                print(f"[{s}] differs from the reference: {tokens - same} of {tokens} tokens")
    show_times(table, job)
    if not job.references:
        return True
    total = len(job.prompts) * tokens
    print(f"reference       {equal} of {total} tokens equal, in {whole} of {len(job.prompts)} sequences")
    return equal == total
