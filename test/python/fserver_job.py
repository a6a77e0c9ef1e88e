# SPDX-License-Identifier: Apache-2.0
"""Jobs of fserver_lib: forked ranks with StepMesh's environment, as its scripts set it."""

import array
import faulthandler
import os
import socket
import sys
import traceback

import job


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _be(body, env):
    code = 1
    try:
        faulthandler.dump_traceback_later(job.LIMIT_S, exit=True)
        for name in [name for name in os.environ if name.startswith(
                ("DMLC_", "STEPMESH_", "STEPAF_LOCAL_", "STEPAF_SPLIT"))]:
            del os.environ[name]
        os.environ.update(env)
        import fserver_lib as f
        body(f, int(env.get("STEPMESH_GPU", 0)))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def start(worker, server, workers=1, servers=1, env=None, scheduler=None):
    """Fork the ranks; each calls worker(fserver_lib, rank) or server(fserver_lib, rank)."""
    common = {"DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1", "DMLC_NODE_RANK": "0",
              "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(free_port()),
              "DMLC_GROUP_SIZE": "1", "DMLC_INTERFACE": "auto", "DMLC_ENABLE_RDMA": "ibverbs",
              "FSERVER_LIB_BYTES": "1M", **(env or {})}
    common["DMLC_NUM_WORKER"], common["DMLC_NUM_SERVER"] = str(workers), str(servers)
    roles = [("worker", worker, workers), ("server", server, servers)]
    if scheduler is not None:
        roles.append(("scheduler", scheduler, 1))
    pids = []
    sys.stdout.flush()
    sys.stderr.flush()
    for role, body, count in roles:
        for rank in range(count):
            pid = os.fork()
            if pid == 0:
                _be(body, {**common, "DMLC_ROLE": role, "STEPMESH_GPU": str(rank)})
            pids.append(pid)
    return pids


class TestCase(job.TestCase):
    def run_fserver(self, worker, server, workers=1, servers=1, env=None, scheduler=None):
        codes = job.end(start(worker, server, workers, servers, env, scheduler))
        self.assertEqual(codes, [0] * len(codes))


def floats(n, value=0.0):
    return array.array("f", [value] * n)


def values(tensor):
    """Of what get_batch has returned, without torch: a Tensor of f32."""
    if not tensor.nbytes:
        return []
    with memoryview(tensor) as view, view.cast("B").cast("f") as numbers:
        return list(numbers)


def raises(kind, word, call, *arguments):
    """A call that fails must say why."""
    try:
        call(*arguments)
    except kind as error:
        assert word in str(error), str(error)
        return error
    raise AssertionError(f"no {kind.__name__}")
