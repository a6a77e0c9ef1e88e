# SPDX-License-Identifier: Apache-2.0
"""The calls of "The API by example" in docs/python.md, made as they are written there, with host memory."""

import ast
import asyncio
import inspect
import pathlib

import job
import stepaf

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"
H, ROUTING, Z = 3, 4, 5
N, M = 4, 12


def paragraphs():
    """Of the example, without what needs a GPU, and without the line that only lists a request's methods."""
    example = PAGE.read_text(encoding="utf-8").split("## The API by example")[1].split("```")[1]
    for said, here in ((', device="cuda"', ""), ("timeout=1", "timeout=60"), ("ranks=[0, 1]", "ranks=[0]")):
        example = example.replace(said, here)
    return ["\n".join(line for line in part.split("\n") if not line.startswith("request.wait();"))
            for part in example.partition("\n")[2].split("\n\n")]


def do(code, names):
    """Execute a paragraph, which may await."""
    for statement in ast.parse(code).body:
        module = ast.Module([statement], [])
        made = eval(compile(module, str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.iscoroutine(made):
            asyncio.run(made)


def serve(ctx, names):
    """Answer what attention ranks send until they leave."""
    y = ctx.alloc((128, 7168), "bf16")
    while True:
        try:
            batch = ctx.recv()
        except stepaf.PeerLostError:
            return
        rows = next(len(tensor) for tensor in batch if tensor.key == names["x_key"])
        batch.respond(y[:rows]).wait()
        del batch


def ended(plan):
    """Whether all of its batches have been released, so that another plan with its keys can start."""
    try:
        plan.destroy()
        return True
    except stepaf.StateError:
        return False


def attention(ctx):
    _, keys, memory, starts, _, _, scatter, _, rest = paragraphs()
    names = {"stepaf": stepaf, "ctx": ctx, "tensor": bytearray(64), "n": N, "m": M, "rank": 0}
    names["h_key"] = ctx.push_key(H, 64, "i32", depth=3)
    do(keys, names)
    if ctx.role == stepaf.Role.FFN:
        ctx.commit()
        serve(ctx, names)
        return
    names["h"] = ctx.alloc((2, 64), "i32")
    do(memory, names)
    names["other"] = None
    do(starts, names)
    job.until(lambda: ended(names["plan"]))
    do(scatter.partition("\nplan.start")[0], names)
    for start in scatter.split("\n")[-2:]:
        do("request = " + start, names)
        names["request"].wait()
    do(rest.partition("\n")[0], names)


def ffn(ctx):
    _, keys, _, _, receives, parts, _, many, rest = paragraphs()
    names = {"stepaf": stepaf, "ctx": ctx, "n": N, "rank": 0}
    do(keys, names)
    x_key, y_key = names["x_key"], names["y_key"]
    routing, z_key = ctx.push_key(ROUTING, (128, 8), "i32", depth=3), ctx.pull_key(Z, (128, 7168), "bf16", depth=3)
    if ctx.role == stepaf.Role.ATTENTION:
        x, r = ctx.alloc((128, 7168), "bf16"), ctx.alloc((128, 8), "i32")
        y, z = ctx.alloc((3, 128, 7168), "bf16"), ctx.alloc((3, 128, 7168), "bf16")
        one, both = (ctx.plan({x_key: x, routing: r}, pulls)
                     for pulls in ({y_key: y[0]}, {y_key: y[0], z_key: z[0]}))
        ctx.commit()
        requests = [one.start([x[:N], r[:N]]) for _ in range(2)]
        for request in requests:
            request.wait()
        for plan in (both, one):
            plan.start([x[:N], r[:N]], wait=True).wait()
        return
    *others, set_recv = many.split("\n")
    names["x"] = ctx.alloc((3, 128, 7168), "bf16")
    do(set_recv, names)
    ctx.commit()
    do(receives, names)
    names["batch"] = ctx.recv()
    do(parts.replace("z)", "z[:n])").replace("[y, z]", "[y[:n], z[:n]]"), names)
    do(others[0], names)
    names["batch"] = names["batches"][0]
    do("\n".join(others[1:]), names)
    names["batch"].respond([names["y"][:N]]).wait()
    do(rest.partition("\n")[0], names)


class Docs(job.TestCase):
    def test_attention(self):
        self.run_job(attention, ffn=2)

    def test_ffn(self):
        self.run_job(ffn)


if __name__ == "__main__":
    job.main()
