# SPDX-License-Identifier: Apache-2.0
"""fserver_lib: each call of StepMesh's module, with its names, defaults and results."""

import inspect
import os
import threading
import time

import fserver_lib
import job
import stepaf
from fserver_job import TestCase, floats, free_port, raises, values

N = 16


def echo(scale=2.0):
    """A server that answers the first tensor of each batch, scaled."""
    def serve(f, count):
        for _ in range(count):
            for handle, tensors, _ in f.get_batch():
                f.respond([floats(N, scale * values(tensors[0])[0])], handle)
    return serve


def simple(f, value, **options):
    x, y = floats(N, value), floats(N)
    f.wait(f.push_pull([x], [3], [y], [4], **options))
    return y[0]


class Calls(TestCase):
    def test_names_and_defaults(self):
        def of(call):
            return [(each.name, None if each.default is each.empty else each.default)
                    for each in inspect.signature(call).parameters.values()]

        f = fserver_lib
        self.assertEqual(of(f.push_pull), [("push_tensors", None), ("push_keys", None),
                                           ("pull_tensors", None), ("pull_keys", None), ("need_event", True)])
        self.assertEqual(of(f.wait), [("handler", None), ("timeout_ms", 10000)])
        self.assertEqual(of(f.respond), [("tensors", None), ("handler", None), ("need_event", False)])
        self.assertEqual(of(f.respond_vec), [("ret_buffer", None), ("tensors_vec", None), ("handler_vec", None)])
        self.assertEqual(of(f.register_recv_buffer), [("tensor", None), ("worker_ranks", None),
                                                      ("push_keys", None)])
        self.assertEqual(of(f.barrier)[2], ("instance_barrier", True))
        self.assertIs(f.finalize, f.stop)

    def test_without_init(self):
        raises(stepaf.StateError, "init", fserver_lib.push_pull, [], [], [], [])
        raises(stepaf.StateError, "init", fserver_lib.get_batch)
        fserver_lib.stop()
        raises(NotImplementedError, "plug-ins", fserver_lib.init, "libklx_backend.so")

    def test_init_wait_stop(self):
        def worker(f, rank):
            assert f.init() is None
            raises(stepaf.StateError, "init", f.init)
            assert simple(f, 3) == 6 and simple(f, 4, need_event=False) == 8
            raises(stepaf.RoleError, "server", f.get_batch)
            raises(stepaf.HandleError, "77", f.wait, 77)
            f.stop()
            f.stop()

        def server(f, rank):
            f.init()
            echo()(f, 2)
            raises(stepaf.RoleError, "worker", f.push_pull, [], [], [], [])
            raises(stepaf.HandleError, "99", f.respond, [], 99)
            f.finalize()

        self.run_fserver(worker, server)

    def test_scheduler_does_nothing(self):
        def scheduler(f, rank):
            f.init()
            f.barrier(True, True)
            raises(stepaf.StateError, "scheduler", f.get_batch)
            f.stop()

        def rank_of(f, rank):
            f.init()
            f.stop()

        self.run_fserver(rank_of, rank_of, scheduler=scheduler)

    def test_server_as_root(self):
        def rank_of(f, rank):
            f.init()
            from fserver_lib import _state
            assert _state.context().world_rank == (0 if os.environ["DMLC_ROLE"] == "server" else 1)
            assert "STEPAF_MEET" not in os.environ
            f.stop()

        self.run_fserver(rank_of, rank_of, env={"FSERVER_LIB_ROOT": "server"})

    def test_native_start(self):
        """As mpirun and torchrun: the library's own bootstrap, roles by split."""
        def body(ctx):
            rank = ctx.rank
            role = ctx.role
            ctx.close()
            os.environ["STEPAF_LOCAL_JOB"] += "-2"
            fserver_lib.init()
            from fserver_lib import _state
            assert (_state.context().rank, _state.context().role) == (rank, role)
            fserver_lib.stop()

        self.run_job(body, 2, 1)

    def test_torchrun_start(self):
        """RANK and WORLD_SIZE of torchrun, roles by DMLC_ROLE."""
        def rank_of(f, rank):
            server = os.environ["DMLC_ROLE"] == "server"
            for name in ("DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT"):
                os.environ.pop(name)
            os.environ.update({"TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2",
                               "MASTER_PORT": os.environ["PORT"], "RANK": str(int(server))})
            f.init()
            assert echo()(f, 1) is None if server else simple(f, 1) == 2
            f.stop()

        self.run_fserver(rank_of, rank_of, env={"PORT": str(free_port() - 1000)})

    def test_bad_environment(self):
        from fserver_lib import _env
        saved = dict(os.environ)
        cases = [({"DMLC_ROLE": "boss"}, "boss"), ({"DMLC_NUM_WORKER": "x"}, "DMLC_NUM_WORKER=x"),
                 ({"STEPMESH_GPU": "7"}, "rank 7 of 4"), ({"FSERVER_LIB_DEPTH": "0"}, "DEPTH"),
                 ({"DMLC_PS_ROOT_PORT": ""}, "not set"), ({"FSERVER_LIB_RESPOND_VEC": "x"}, "split")]
        base = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "1", "DMLC_GROUP_SIZE": "2",
                "DMLC_PS_ROOT_URI": "node", "DMLC_PS_ROOT_PORT": "8123"}
        try:
            for name in ("STEPAF_LOCAL_SIZE", "STEPAF_BOOT", "STEPAF_MEET"):
                os.environ.pop(name, None)
            for wrong, word in cases:
                os.environ.update({**base, "STEPMESH_GPU": "0", **wrong})
                raises(stepaf.SettingError, word, _env.read)
                for name in wrong:
                    os.environ.pop(name)
            os.environ.update({**base, "DMLC_NODE_RANK": "1", "STEPMESH_GPU": "1", "DMLC_INTERFACE": "eth7"})
            self.assertEqual(_env.read().settings, {
                "STEPAF_BOOT": "tcp", "STEPAF_MEET": "node:8123", "STEPAF_RANK": "3", "STEPAF_SIZE": "6",
                "STEPAF_NET_IF": "eth7"})
            os.environ.update({"DMLC_ROLE": "server", "DMLC_NODE_RANK": "0"})
            self.assertEqual(_env.read().settings["STEPAF_RANK"], "5")
        finally:
            os.environ.clear()
            os.environ.update(saved)

    def test_push_pull_checks(self):
        def worker(f, rank):
            f.init()
            x, y = floats(N, 1), floats(N)
            raises(stepaf.PullsError, "2 servers", f.push_pull, [x], [1], [y], [2])
            raises(stepaf.InvalidError, "keys", f.push_pull, [x], [1, 2], [], [])
            raises(stepaf.SizeError, "FSERVER_LIB_BYTES", f.push_pull, [bytearray(1 << 20)], [1], [], [])
            handle = f.push_pull([x], [1], [y, floats(N)], [2, 3])
            raises(stepaf.TimeoutError, "FFN rank", f.wait, handle, 20)
            f.barrier(True, True)
            f.wait(handle)
            f.wait(handle)
            assert y[0] == 5
            f.wait(f.push_pull([], [], [y, floats(N)], [2]))  # pulls alone, of several servers
            assert y[0] == 6
            f.wait(f.push_pull([x], [1 << 60], [], []))       # pushes alone
            f.stop()

        def server(f, rank):
            f.init()
            f.barrier(True, True)
            (handle, tensors, keys), = f.get_batch()
            assert keys == [1] and tensors[0].shape == (N,) and tensors[0].dtype == "f32"
            raises(stepaf.PullsError, "1 pulls", f.respond, [], handle)
            raises(stepaf.SizeError, "key", f.respond, [floats(N + 1)], handle)
            f.respond([floats(N, 5)], handle)
            raises(stepaf.HandleError, "answered", f.respond, [floats(N)], handle)
            (handle, tensors, keys), = f.get_batch()
            assert (tensors, keys) == ([], [])
            f.respond([floats(N, 6)], handle)
            (handle, tensors, keys), = f.get_batch()
            assert keys == [1 << 60] and values(tensors[0]) == [1] * N
            f.respond([], handle)
            f.stop()

        self.run_fserver(worker, server, servers=2)

    def test_more_than_the_ring(self):
        """More operations than slots before the first wait, and wait in another order."""
        def worker(f, rank):
            f.init()
            y = [floats(N) for _ in range(7)]
            handles = []
            for i in range(7):
                x = floats(N, i)
                handles.append(f.push_pull([x], [i], [y[i]], [i]))
                x[0] = -1  # at once
            for handle in reversed(handles):
                f.wait(handle)
            assert [each[0] for each in y] == [2.0 * i for i in range(7)]
            f.stop()

        def server(f, rank):
            f.init()
            echo()(f, 7)
            f.stop()

        self.run_fserver(worker, server, env={"FSERVER_LIB_DEPTH": "2"})

    def test_get_batch_frees_the_lock(self):
        turned = job.Signal()

        def worker(f, rank):
            f.init()
            f.barrier(include_server=True, include_worker=True)
            turned.wait()
            assert simple(f, 1) == 2
            f.stop()

        def server(f, rank):
            f.init()
            raises(stepaf.TimeoutError, "", f.get_batch, 10)
            f.barrier(include_server=True, include_client=True)
            thread = threading.Thread(target=echo(), args=(f, 1))
            thread.start()
            for _ in range(11):
                time.sleep(0.001)
            assert thread.is_alive()
            turned.send()
            thread.join()
            f.stop()

        self.run_fserver(worker, server)
        turned.close()

    def respond_vec(self, env, expected):
        def worker(f, rank):
            f.init()
            rows = 1 + rank
            x, y = floats(N * rows, rank), floats(N * 4, -1)
            f.wait(f.push_pull([stepaf.view(stepaf.as_tensor(x), (rows, N), "f32")], [rank], [y], [rank]))
            assert list(y[:N * rows:N]) == expected[rank], list(y)
            assert y[N * rows] == -1
            f.stop()

        def server(f, rank):
            f.init()
            batches = f.get_batch()
            assert [values(batch[1][0])[0] for batch in batches] == [0, 1, 2]
            buffer = floats(0)
            for row in range(8):
                buffer.extend([row] * N)
            f.respond_vec(stepaf.view(stepaf.as_tensor(buffer), (8, N), "f32"),
                          [batch[1][0] for batch in batches], [batch[0] for batch in batches])
            f.stop()

        self.run_fserver(worker, server, workers=3, env=env)

    def test_respond_vec(self):
        self.respond_vec({}, [[0], [1, 2], [3, 4, 5]])

    def test_respond_vec_as_stepmesh(self):
        self.respond_vec({"FSERVER_LIB_RESPOND_VEC": "first"}, [[0], [0, 1], [0, 1, 2]])

    def test_threads_do_not_wait_for_each_other(self):
        """A push_pull that waits for a slot keeps no other thread from its answer."""
        go_on = job.Signal()

        def worker(f, rank):
            f.init()
            x, y = floats(N, 1), [floats(N) for _ in range(3)]
            first, second = (f.push_pull([x], [1], [y[i]], [2]) for i in range(2))
            third = []
            thread = threading.Thread(target=lambda: third.append(f.push_pull([x], [1], [y[2]], [2])))
            thread.start()
            from fserver_lib import _state
            job.until(lambda: _state.worker().known[1].lock.locked())  # it waits for the first
            f.wait(second)
            assert y[1][0] == 5 and not third
            go_on.send()
            thread.join()
            f.wait(first)
            f.wait(third[0])
            assert y[0][0] == 6 and y[2][0] == 7
            f.stop()

        def server(f, rank):
            f.init()
            (first, _, _), = f.get_batch()
            (second, _, _), = f.get_batch()
            f.respond([floats(N, 5)], second)
            go_on.wait()
            f.respond([floats(N, 6)], first)
            (third, _, _), = f.get_batch()
            f.respond([floats(N, 7)], third)
            f.stop()

        self.run_fserver(worker, server, env={"FSERVER_LIB_DEPTH": "2", "STEPAF_TIMEOUT_US": "5000000"})
        go_on.close()

    def test_an_answer_is_copied_without_a_lock(self):
        def worker(f, rank):
            f.init()
            x, y = floats(N, 1), [floats(N) for _ in range(2)]
            handles = [f.push_pull([x], [1], [each], [2]) for each in y]
            for handle, each in zip(handles, y):
                f.wait(handle)
                assert each[0] == 3
            f.stop()

        def server(f, rank):
            f.init()
            from fserver_lib import _wire
            write, begun, go_on, failed = _wire.write, threading.Event(), threading.Event(), []

            def slow(*arguments):
                begun.set()
                if not go_on.wait(10):
                    failed.append("get_batch has waited for an answer to be copied")
                return write(*arguments)

            (first, _, _), = f.get_batch()
            _wire.write = slow
            thread = threading.Thread(target=f.respond, args=([floats(N, 3)], first))
            thread.start()
            assert begun.wait(30)
            assert not f.sent(first)
            raises(stepaf.HandleError, "is answered", f.respond, [floats(N)], first)
            (second, _, _), = f.get_batch()
            go_on.set()
            thread.join()
            f.respond([floats(N, 3)], second)
            assert not failed, failed
            f.stop()

        self.run_fserver(worker, server)

    def test_a_batch_that_cannot_be_taken(self):
        """One of two does not fit the registered buffer: both workers are told."""
        def worker(f, rank):
            f.init()
            y = floats(N)
            handle = f.push_pull([floats(N if rank else 1)], [1], [y], [2])
            raises(stepaf.CanceledError, "", f.wait, handle)
            assert simple(f, 2) == 4
            f.stop()

        def server(f, rank):
            f.init()
            f.register_recv_buffer(floats(8), [0, 1], [1, 1])
            raises(stepaf.SizeError, "worker 1", f.get_batch)
            echo()(f, 1)
            f.stop()

        self.run_fserver(worker, server, workers=2)

    def test_register_recv_buffer(self):
        def worker(f, rank):
            f.init()
            f.wait(f.push_pull([floats(N, 10 + rank), floats(N - 1, 20 + rank)], [5, 6], [], []))
            f.stop()

        def server(f, rank):
            f.init()
            buffer = floats(3 * N, -1)
            raises(stepaf.InvalidError, "rank 2", f.register_recv_buffer, buffer, [2], [5])
            raises(stepaf.SizeError, "equal", f.register_recv_buffer, buffer, [0] * 5, [5] * 5)
            f.register_recv_buffer(buffer, [1, 0, 1], [5, 5, 6])
            batches = f.get_batch()
            assert list(buffer) == [11] * N + [10] * N + [21] * (N - 1) + [-1]
            start = stepaf.as_tensor(buffer).data_ptr()
            assert batches[1][1][1].data_ptr() == start + 8 * N and batches[1][1][1].shape == (N - 1,)
            assert values(batches[0][1][1]) == [20] * (N - 1)
            f.stop()

        self.run_fserver(worker, server, workers=2)

    def test_barrier(self):
        def rank_of(f, rank):
            f.init()
            worker = os.environ["DMLC_ROLE"] == "worker"
            for _ in range(1 + worker):  # one of them at servers only would hang
                f.barrier(not worker, worker)
            f.barrier(include_server=not worker, include_worker=worker, instance_barrier=False)
            f.barrier(False, False)
            raises(TypeError, "include", f.barrier, True)
            f.barrier(True, True, True)
            f.stop()

        self.run_fserver(rank_of, rank_of, 2, 2)

    def test_handlers_and_traces(self):
        def worker(f, rank):
            f.init()
            before = f.get_nanosecond()
            handle = f.push_pull([floats(N, 1), floats(N)], [1, 2], [floats(N), floats(N)], [3, 4])
            raises(stepaf.StateError, "waited", f.fetch_trace, handle)
            handles = f.get_all_handlers(handle)
            assert len(handles) == 4 and len({handle, *handles}) == 5
            for each in handles:
                f.wait(each)
            assert f.sent(handle)
            after = f.get_nanosecond()
            for each in (handle, *handles):
                trace = f.fetch_trace(each)
                assert len(trace) == 8 and trace == sorted(trace), trace
                assert before - 10**6 < trace[0] and trace[7] <= after, (before, trace, after)
            slow = f.fetch_trace(handles[3])
            assert slow[4] - slow[3] > 10**7 and slow[6] == f.fetch_trace(handle)[6], slow
            f.stop()

        def server(f, rank):
            f.init()
            (handle, _, _), = f.get_batch()
            if rank == 1:
                time.sleep(0.05)
            assert not f.sent(handle)
            f.respond([floats(N)], handle)
            job.until(lambda: f.sent(handle))
            f.stop()

        self.run_fserver(worker, server, servers=2)

    def test_a_dead_server(self):
        def worker(f, rank):
            f.init()
            handle = f.push_pull([floats(N)], [1], [floats(N)], [1])
            raises(stepaf.PeerLostError, "FFN rank 0", f.wait, handle, 60000)
            try:
                f.stop()
            except stepaf.StepafError:
                pass
            raises(stepaf.StateError, "init", f.wait, handle)

        def server(f, rank):
            f.init()
            f.get_batch()
            os._exit(0)

        self.run_fserver(worker, server)

    def test_graph_helpers_on_the_host(self):
        f = fserver_lib
        import array
        flag, seq = array.array("q", [0]), array.array("q", [0])
        mapped = f.map_pinned_tensor(flag, 0)
        f.seq_add_one(seq)
        thread = threading.Timer(0.05, lambda: f.write_flag(mapped, seq))
        thread.start()
        f.wait_flag(flag, seq)
        thread.join()
        self.assertEqual((flag[0], seq[0]), (1, 1))
        f.wait_flag(flag, array.array("q", [0]))
        raises(NotImplementedError, "recv_on_stream", f.SimpleNotify)
        raises(stepaf.InvalidError, "int64", f.write_flag, array.array("i", [0]), seq)

    def test_messages_are_not_trusted(self):
        from fserver_lib import _tensors, _wire
        memory = bytearray(4096)
        view = stepaf.as_tensor(memory)
        size = _wire.write(view.data_ptr(), 4096, 7, [(1, _tensors.read(floats(4, 1), True))])
        self.assertEqual(_wire.read(view.data_ptr(), size)[1][0].shape, (4,))
        good = bytes(memory)
        for place, value in ((0, 0), (4, 200), (24, 255), (32, 99), (33, 9), (40, 200)):
            memory[:] = good
            memory[place] = value
            raises(stepaf.ProtocolError, "", _wire.read, view.data_ptr(), size)
        raises(stepaf.ProtocolError, "4 bytes", _wire.read, view.data_ptr(), 4)


if __name__ == "__main__":
    job.main()
