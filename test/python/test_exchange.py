# SPDX-License-Identifier: Apache-2.0
"""Exchanges between ranks: plans, batches, and what becomes of their memory."""

import gc
import warnings

import job
import stepaf

X, Y, N = 1, 2, 256


def keys(ctx, depth=1):
    return (ctx.push_key(X, (N, 4), "f32", depth=depth), ctx.pull_key(Y, (N, 4), "f32", depth=depth))


def fill(tensor, value):
    with memoryview(tensor) as view, view.cast("B").cast("f") as floats:
        for i in range(len(floats)):
            floats[i] = value + i


def holds(tensor, value, scale=1):
    with memoryview(tensor) as view, view.cast("B").cast("f") as floats:
        return all(floats[i] == scale * (value + i) for i in range(len(floats)))


def double(source, target, scale=2):
    if not source.nbytes:  # which memoryview does not cast
        return
    with memoryview(source) as s, memoryview(target) as t, \
            s.cast("B").cast("f") as a, t.cast("B").cast("f") as b:
        for i in range(len(a)):
            b[i] = scale * a[i]


def serve(ctx, count, **options):
    y = ctx.alloc((N, 4), "f32")
    for _ in range(count):
        batch = ctx.recv()
        double(batch[0], y)
        batch.respond(y[:batch[0].shape[0]], **options).wait()
        if not options.get("release", True):
            batch.release()


def planned(ctx):
    """Two attention ranks, two FFN ranks, three layers."""
    x_key, y_key = keys(ctx)
    if ctx.role == stepaf.Role.FFN:
        ctx.commit()
        return serve(ctx, 3 * ctx.n_attention, release=ctx.rank == 0)
    memory = ctx.alloc((1 + ctx.n_ffn, N, 4), "f32")
    plan = ctx.plan({x_key: memory[0]}, [(y_key, memory[1 + f]) for f in range(ctx.n_ffn)])
    ctx.commit()
    assert plan.depth == 1 and ctx.epoch == 1
    for layer in range(3):
        fill(memory[0], 100 * layer + ctx.rank)
        request = plan.start(wait=True)
        request.wait()
        for f in range(ctx.n_ffn):
            arrived = request.tensor(f)
            assert arrived.key == Y and arrived.shape == (N, 4) and arrived.dtype == "f32"
            assert arrived.data_ptr() == memory[1 + f].data_ptr()
            assert holds(arrived, 100 * layer + ctx.rank, 2)
            assert request.peer(f) and request.timeline(f).answered_ns > 0
    assert ctx.counters()["operations_completed"] == 3
    assert ctx.link(0).bytes_sent >= 3 * N * 16 and ctx.link(0).transport.startswith("shm")
    assert {record.event for record in ctx.trace()} >= {"start", "answered"}


def varied(ctx):
    """Sizes and sources of an operation, registered memory, push_pull, zero rows."""
    x_key, y_key = keys(ctx)
    if ctx.role == stepaf.Role.FFN:
        ctx.commit()
        return serve(ctx, 4)
    buffer = bytearray(2 * N * 16)
    memory = stepaf.view(ctx.register(buffer), (2, N, 4), "f32")
    plan = ctx.plan([(x_key, memory[0])], [(y_key, memory[1])])
    ctx.commit()
    fill(memory[0], 1)
    request = plan.start([memory[0][:10]])
    request.wait()
    assert request.tensor(0).shape == (10, 4) and holds(request.tensor(0), 1, 2)
    request = plan.start([None], wait=True)
    request.wait(60)
    assert request.tensor(0).nbytes == 0
    request = ctx.push_pull({x_key: memory[0][:3]}, {y_key: memory[1]})
    while not request.test():
        ctx.progress()
    assert holds(request.tensor(0), 1, 2) and request.tensor(0).shape == (3, 4)
    again = ctx.push_pull({x_key: memory[0]}, {y_key: memory[1]})
    assert stepaf.wait_any([None, again]) == 1 and again.sent


def scattered(ctx):
    """Each FFN rank gets rows of its own; one gets none."""
    x_key, y_key = keys(ctx)
    if ctx.role == stepaf.Role.FFN:
        ctx.commit()
        return serve(ctx, 2 if ctx.rank == 0 else 1)
    memory = ctx.alloc((1 + ctx.n_ffn, N, 4), "f32")
    plan = ctx.plan({x_key: memory[0]}, [(y_key, memory[1 + f]) for f in range(ctx.n_ffn)],
                    scatter=True)
    ctx.commit()
    fill(memory[0], 0)
    request = plan.start([memory[0][:5], memory[0][5:15]])
    request.wait()
    assert [request.tensor(f).shape[0] for f in range(2)] == [5, 10]
    assert holds(request.tensor(1), 20, 2)
    request = plan.start([memory[0][:5], None], wait=True)
    request.wait()
    assert request.tensor(1).nbytes == 0


def each(ctx):
    """One batch of each rank, answered together."""
    x_key, y_key = keys(ctx)
    if ctx.role == stepaf.Role.ATTENTION:
        memory = ctx.alloc((2, N, 4), "f32")
        plan = ctx.plan({x_key: memory[0]}, {y_key: memory[1]})
        ctx.commit()
        fill(memory[0], ctx.rank)
        request = plan.start([memory[0][:3 + ctx.rank]])
        request.wait()
        assert request.tensor(0).shape[0] == 3 + ctx.rank
        assert holds(request.tensor(0), ctx.rank, 2)
        return
    y = ctx.alloc((N, 4), "f32")
    ctx.commit()
    batches = ctx.recv_each()
    assert [batch.attention_rank for batch in batches] == [0, 1, 2]
    row = 0
    for batch in batches:
        (x,) = batch
        double(x, y[row:row + x.shape[0]])
        row += x.shape[0]
        answer, = batch.answers
        assert answer == stepaf.Answer(Y, (N, 4), "f32", N * 16), answer
    stepaf.respond_many(batches, y)
    assert all(batch.released for batch in batches)
    ctx.barrier(stepaf.Group.FFN)


def some(ctx):
    """Operations that one of two answers completes; the other one is late."""
    x_key, y_key = keys(ctx, depth=2)
    if ctx.role == stepaf.Role.FFN:
        ctx.commit()
        if ctx.rank == 0:
            serve(ctx, 3)
            ctx.barrier()
            return serve(ctx, 1)
        held = [ctx.recv(), ctx.recv()]
        ctx.barrier()
        y = ctx.alloc((N, 4), "f32")
        for batch in held:
            double(batch[0], y)
            batch.respond(y).wait()
        return serve(ctx, 1)
    memory = ctx.alloc((5, N, 4), "f32")
    plan = ctx.plan({x_key: memory[0]}, [(y_key, memory[1]), (y_key, memory[3])])
    ctx.commit()
    plan.set_answers(1)
    fill(memory[0], 7)
    requests = []
    for _ in range(3):
        requests.append(plan.start(wait=True))
        requests[-1].wait()
        requests[-1].wait_peer(0)
        assert requests[-1].answers() == (True, False)
    try:
        requests[-1].peer(1)
        raise AssertionError("it was left out")
    except BlockingIOError:
        pass
    try:
        requests[-1].wait_rest(timeout=0.01)
        raise AssertionError("it is late")
    except TimeoutError:
        pass
    assert ctx.counters()["left_out"] == 1
    ctx.barrier()
    for request in requests[1:]:
        request.wait_rest()
    assert ctx.counters()["late"] == 2
    request = plan.start(answers=2, patience=1)
    request.wait_tensor(1)
    request.wait()
    assert request.answers() == (True, True) and holds(request.tensor(1), 7, 2)
    for bad in ({"answers": 3}, {"answers": -1}, {"patience": -1}):
        try:
            plan.set_answers(**bad)
            raise AssertionError(bad)
        except ValueError:
            pass


def raises(kind, call, *args, **options):
    try:
        call(*args, **options)
    except kind:
        return
    raise AssertionError(f"{call} has to raise {kind}")


def stepwise(ctx):
    """A push that is confirmed, and an answer tensor by tensor, in the order in which they are made."""
    x_key, y_key = keys(ctx)
    z_key = ctx.pull_key(3, (N, 4), "f32")
    if ctx.role == stepaf.Role.ATTENTION:
        memory = ctx.alloc((3, N, 4), "f32")
        plan = ctx.plan({x_key: memory[0]}, [(y_key, memory[1]), (z_key, memory[2])])
        ctx.commit()
        fill(memory[0], ctx.rank)
        request = plan.start()
        raises(TimeoutError, request.wait_push, 0, 0)
        raises(TimeoutError, request.wait_push, ffn_rank=0, timeout=0.01)
        raises(stepaf.InvalidError, request.wait_push, 1)
        raises(TypeError, request.wait_push)
        raises(TypeError, request.wait_push, "0")
        ctx.barrier()
        request.wait_push(0)
        raises(TimeoutError, request.wait_tensor, 1, 0)
        ctx.barrier()
        request.wait_tensor(1)
        arrived = request.tensor(1)
        assert arrived.key == 3 and arrived.shape == (7, 4) and holds(arrived, ctx.rank, 3)
        assert request.tensor(0) is None and not request.peer(0) and not request.test()
        ctx.barrier()
        request.wait()
        request.wait_push(0, timeout=0)
        assert holds(request.tensor(0), ctx.rank, 2) and holds(request.tensor(1), ctx.rank, 3)
        request = plan.start(wait=True)
        request.wait_tensor(index=0)
        request.wait()
        assert request.tensor(0).nbytes == 0 and holds(request.tensor(1), ctx.rank, 3)
        return
    memory = ctx.alloc((ctx.n_attention, 2, N, 4), "f32")
    ctx.commit()
    batches = ctx.recv_each()
    ctx.barrier()
    for batch in batches:
        batch.confirm()
    ctx.barrier()
    for batch in batches:
        z = memory[batch.attention_rank][1]
        double(batch[0][:7], z, 3)
        raises(stepaf.InvalidError, batch.respond_tensor, 2, z)
        raises(stepaf.InvalidError, batch.respond_tensor, -1, z)
        raises(TypeError, batch.respond_tensor, 1, [z])
        raises(TypeError, batch.respond_tensor, 1)
        raises(stepaf.UnregisteredError, batch.respond_tensor, 1, bytearray(64))
        raises(stepaf.SizeError, batch.respond_tensor, 1, memory)
        batch.respond_tensor(1, z[:7])
        raises(stepaf.StateError, batch.respond_tensor, index=1, tensor=z[:7])
    ctx.barrier()
    for batch in batches:
        y, z = memory[batch.attention_rank][0], memory[batch.attention_rank][1]
        double(batch[0], y)
        raises(stepaf.InvalidError, batch.respond, [y, z])
        batch.respond([y, z[:7]])
        raises(stepaf.HandleError, batch.confirm)
        raises(stepaf.HandleError, batch.respond_tensor, 1, z)
    for batch in ctx.recv_each():
        batch.respond_tensor(0, None)
        batch.respond([None, memory[batch.attention_rank][1][:7]])
    ctx.barrier(stepaf.Group.FFN)


def lives(ctx):
    """Every way in which a batch goes back."""
    x_key, y_key = ctx.push_key(X, 64, depth=1), None
    if ctx.role == stepaf.Role.ATTENTION:
        x = ctx.alloc(64)
        plan = ctx.plan({x_key: x})
        ctx.commit()
        for _ in range(6):  # each waits until the batch before is released
            plan.start(wait=True).wait()
        return
    ctx.commit()
    del y_key
    batch = ctx.recv()
    tensor = batch[0]
    batch.release()
    for use in (tensor.data_ptr, lambda: memoryview(tensor), tensor.__dlpack__, batch.release,
                lambda: batch[0], lambda: batch.answers, lambda: tensor[0:1]):
        try:
            use()
        except stepaf.HandleError as error:
            assert "released" in error.text, error.text
        else:
            raise AssertionError("use after release")
    assert batch.released and not tensor.valid
    with ctx.recv() as batch:
        assert batch.sequence == 1 and batch.plan >= 0 and len(batch) == 1
    assert batch.released
    batch = ctx.recv()  # the view is what is left, and goes
    view = memoryview(batch[0])
    del batch
    assert ctx.exports == 1
    assert ctx.counters()["batches_received"] == 3
    view.release()
    del view
    capsule = ctx.recv()[0].__dlpack__()
    assert ctx.exports == 1
    del capsule
    tensor = ctx.recv()[0]
    assert tensor.valid
    del tensor
    ctx.recv()
    gc.collect()
    assert ctx.exports == 0


def closed_while_read(ctx):
    """What is read after the end of the with statement is still there."""
    x_key = ctx.push_key(X, 64)
    memory = ctx.alloc(64)
    if ctx.role == stepaf.Role.ATTENTION:
        memoryview(memory)[0] = 7
        plan = ctx.plan({x_key: memory})
        ctx.commit()
        request = plan.start()
        try:
            request.wait()
        except stepaf.PeerLostError as error:  # the batch is never given back
            assert error.peer == stepaf.Peer(stepaf.Role.FFN, 0, 1), error.peer
    else:
        ctx.commit()
        memory = ctx.recv()[0]
    view = memoryview(memory)
    ctx.close()
    assert ctx.closed and ctx.exports == 1
    assert view[0] == 7
    for use in (ctx.commit, lambda: ctx.alloc(1), ctx.counters, lambda: ctx.role):
        try:
            use()
        except stepaf.HandleError:
            continue
        raise AssertionError("use after close")
    view.release()
    assert not memory.valid
    try:
        memory.data_ptr()
    except stepaf.HandleError as error:
        assert "closed" in error.text
    ctx.close()


def memory(ctx):
    """Allocations are freed on demand, or by the commit after the last reference."""
    tensor = ctx.alloc((4, 4), "bf16")
    assert (tensor.nbytes, tensor.dtype, tensor.device, tensor.key) == (32, "bf16", "cpu", 0)
    assert bytes(memoryview(tensor).cast("B")) == bytes(32)
    view = memoryview(tensor)
    try:
        ctx.free(tensor)
    except BufferError as error:
        assert "readers" in str(error)
    else:
        raise AssertionError("freed while it is read")
    view.release()
    ctx.free(tensor)
    assert not tensor.valid
    for wrong in (tensor, stepaf.as_tensor(bytearray(4))):
        try:
            ctx.free(wrong)
        except (stepaf.HandleError, stepaf.UnregisteredError):
            continue
        raise AssertionError("freed twice")
    numbers = bytearray(64)
    ctx.register(numbers)
    try:
        numbers.append(1)
    except BufferError:
        pass
    else:
        raise AssertionError("registered memory has moved")
    ctx.deregister(numbers)
    numbers.append(1)
    for _ in range(50):
        ctx.alloc(1 << 20)
    ctx.declare(5, stepaf.Direction.PUSH, 8)
    before = resident()
    ctx.commit()
    ctx.declare(6, stepaf.Direction.PUSH, 8)
    assert resident() <= before


def resident():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[0])


class Exchange(job.TestCase):
    def test_planned(self):
        self.run_job(planned, 2, 2)

    def test_planned_with_a_thread(self):
        self.run_job(planned, 1, 2, params={"progress": "thread"})

    def test_planned_for_one_thread(self):
        self.run_job(planned, 1, 1, params={"threads": "single"})

    def test_planned_over_tcp(self):
        def over_tcp(ctx):
            x_key, y_key = keys(ctx)
            if ctx.role == stepaf.Role.FFN:
                ctx.commit()
                return serve(ctx, 1)
            tensors = ctx.alloc((2, N, 4), "f32")
            plan = ctx.plan({x_key: tensors[0]}, {y_key: tensors[1]})
            ctx.commit()
            fill(tensors[0], 3)
            plan.start().wait()
            assert holds(tensors[1], 3, 2) and ctx.link(0).transport.startswith("tcp")

        self.run_job(over_tcp, env={"STEPAF_TRANSPORTS": "tcp"})

    def test_varied(self):
        self.run_job(varied)

    def test_scattered(self):
        self.run_job(scattered, 1, 2)

    def test_each(self):
        self.run_job(each, 3, 1)

    def test_some(self):
        self.run_job(some, 1, 2)

    def test_stepwise(self):
        self.run_job(stepwise, 2, 1)

    def test_stepwise_over_tcp(self):
        self.run_job(stepwise, env={"STEPAF_TRANSPORTS": "tcp"})

    def test_lives(self):
        self.run_job(lives)

    def test_closed_while_read(self):
        self.run_job(closed_while_read)

    def test_memory(self):
        self.run_job(memory)


if __name__ == "__main__":
    warnings.simplefilter("error")
    job.main()
