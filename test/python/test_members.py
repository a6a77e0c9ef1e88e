# SPDX-License-Identifier: Apache-2.0
"""Members: a rank that is killed is left by a commit, and a process that takes its place gets its load;
and a rank that leaves."""

import os
import select
import signal
import unittest.mock

import job
import stepaf
from stepaf import MemberState

X, Y = 1, 2
SECRET = {"STEPAF_SECRET": "of this test alone"}


def make(ctx):
    """The plan of an attention rank, and what it pulls."""
    x_key, y_key = ctx.push_key(X, 1, depth=1), ctx.pull_key(Y, 1, depth=1)
    if ctx.role == stepaf.Role.FFN:
        return ctx.alloc(1), None
    y = [ctx.alloc(1) for _ in range(ctx.n_ffn)]
    return ctx.plan({x_key: ctx.alloc(1)}, [(y_key, each) for each in y]), y


def serve(ctx, y, n):
    """Answer so many batches with this process's number."""
    for _ in range(n):
        memoryview(y)[0] = os.getpid() % 256
        ctx.recv().respond(y).wait()


def states(ctx):
    ctx.progress()
    found = ctx.members()
    assert all(isinstance(state, MemberState) for state in found)
    return [state.name for state in found]


class Raises:
    """In ranks: this class, with these words."""

    def __init__(self, cls, *words):
        self._cls, self._words = cls, words

    def __enter__(self):
        return self

    def __exit__(self, cls, error, trace):
        assert cls is self._cls, f"{cls}, not {self._cls}: {error}"
        assert all(word in str(error) for word in self._words), error
        return True


def first_ffn(ctx):
    y, _ = make(ctx)
    ctx.commit()
    serve(ctx, y, 2)
    with Raises(stepaf.PeerLostError):
        ctx.commit(lost="refuse")
    ctx.commit(lost="leave")
    serve(ctx, y, 1)
    ctx.commit(returning="admit")
    serve(ctx, y, 1)
    ctx.barrier()


def second_ffn(ctx):
    y, _ = make(ctx)
    ctx.commit()  # of one that returns, this is the commit that admits it
    serve(ctx, y, 1)
    if "STEPAF_JOIN" in os.environ:
        ctx.barrier()
        return
    _held = ctx.recv()
    os.kill(os.getpid(), signal.SIGKILL)


def attention(ctx, address):
    plan, y = make(ctx)
    ctx.commit()
    assert states(ctx) == ["IN"] * 3
    assert ctx.members_reason(2) == ""
    with Raises(stepaf.InvalidError, "7"):
        ctx.members_reason(7)
    os.write(address, ctx.members_address().encode())
    plan.start().wait()
    died = memoryview(y[1])[0]
    fd = ctx.members_fd()
    assert not select.select([fd], [], [], 0)[0]
    request = plan.start()
    with Raises(stepaf.PeerLostError, "FFN rank 1"):
        request.wait()
    request.wait_peer(0)
    assert select.select([fd], [], [], 0)[0]
    os.read(fd, 8)
    assert states(ctx) == ["IN", "IN", "LOST"]
    assert ctx.members_reason(2)
    with Raises(stepaf.PeerLostError):
        plan.start(wait=True)
    with Raises(stepaf.PeerLostError):
        ctx.commit(lost="refuse")
    ctx.commit(lost="leave")
    assert states(ctx)[2] in ("OUT", "ASKS") and ctx.epoch == 2, states(ctx)
    request = plan.start()
    request.wait_peer(0)
    with Raises(stepaf.PeerLostError):
        request.wait_peer(1)
    job.until(lambda: states(ctx) == ["IN", "IN", "ASKS"])
    ctx.commit(returning="admit")
    assert states(ctx) == ["IN"] * 3
    plan.start(wait=True).wait()
    assert memoryview(y[1])[0] != died
    ctx.barrier()


def stays(ctx):
    """Of FFN rank 1, which leaves."""
    made, y = make(ctx)
    ctx.commit()
    with Raises(stepaf.StateError, "secret"):
        ctx.members_address()
    if ctx.role == stepaf.Role.FFN:
        serve(ctx, made, 1)
    else:
        made.start().wait()
    if ctx.world_rank == 2:
        ctx.commit(leaving=True)
        return
    job.until(lambda: states(ctx)[2] == "LEAVES")
    ctx.commit()
    assert states(ctx) == ["IN", "IN", "LEFT"]
    if ctx.role == stepaf.Role.FFN:
        serve(ctx, made, 1)
    else:
        made.start().wait_peer(0)
    ctx.barrier()


def words(ctx):
    for wrong in (dict(lost="forget"), dict(returning="maybe")):
        try:
            ctx.commit(**wrong)
        except ValueError as error:
            assert "not one of" in str(error), error
        else:
            raise AssertionError(wrong)
    ctx.commit()


class Members(job.TestCase):
    def killed_and_back(self, **env):
        read, write = os.pipe()

        def body(ctx):
            if ctx.role == stepaf.Role.ATTENTION:
                attention(ctx, write)
            else:
                (first_ffn, second_ffn)[ctx.rank](ctx)

        env = {**SECRET, **env}
        pids = job.start(body, 1, 2, env)
        os.close(write)
        self.assertEqual(job.end(pids[2:]), [-signal.SIGKILL])
        join = {"STEPAF_JOIN": os.read(read, 1024).decode(), "STEPAF_RANK": "2", "STEPAF_SIZE": "3"}
        os.close(read)
        back = os.fork()
        if not back:
            os.environ.update({**env, **join})
            job._be_rank(2, second_ffn, {})
        self.assertEqual(job.end([*pids[:2], back]), [0, 0, 0])

    def test_killed_and_back(self):
        self.killed_and_back()

    def test_by_tcp(self):
        self.killed_and_back(STEPAF_TRANSPORTS="tcp", STEPAF_NET_IF="lo")

    def test_leaves(self):
        self.run_job(stays, 1, 2)

    def test_it_asks_no_launcher(self):
        """A process that returns initializes no MPI, also where a rank of mpirun has started it."""
        with unittest.mock.patch.dict(os.environ, OMPI_COMM_WORLD_SIZE="2"):
            for name in ("STEPAF_BOOT", "STEPAF_LOCAL_SIZE", "STEPAF_MEET", "PMIX_NAMESPACE",
                         "TORCHELASTIC_RUN_ID"):
                os.environ.pop(name, None)
            self.assertTrue(stepaf._boot._wants_mpi())
            os.environ["STEPAF_JOIN"] = "127.0.0.1:1"
            self.assertFalse(stepaf._boot._wants_mpi())

    def test_words(self):
        self.run_job(words)


if __name__ == "__main__":
    job.main()
