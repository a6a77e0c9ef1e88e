# SPDX-License-Identifier: Apache-2.0
"""What tests of the Python package have in common: jobs of forked ranks, and how a test ends.

A test is a program of unittest. Its ranks are forked before the library has a context, and find each
other by STEPAF_LOCAL_SIZE and STEPAF_LOCAL_RANK.
"""

import faulthandler
import glob
import os
import select
import sys
import time
import traceback
import unittest

import stepaf

LIGHT = bool(os.environ.get("TEST_LIGHT"))
LIMIT_S = int(os.environ.get("TEST_TIMEOUT_S", "300"))
# Asking torch would take seconds, and make the GPU unusable to forked ranks.
NO_GPU = "" if glob.glob("/dev/nvidia[0-9]*") else "no GPU: there is no /dev/nvidia0"
_jobs = 0

# A busy machine may keep a rank from its core for long.
os.environ.setdefault("STEPAF_TIMEOUT_US", "60000000")


def few(many, light):
    """The first number, or, where TEST_LIGHT is set, the second."""
    return light if LIGHT else many


def _be_rank(rank, body, params):
    code = 1
    try:
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        os.environ["STEPAF_LOCAL_RANK"] = str(rank)
        with stepaf.Context(**params) as ctx:
            body(ctx)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def start(body, attn=1, ffn=1, env=None, params=None):
    """Fork the ranks of a job, each of which calls body(context); returns their process numbers."""
    global _jobs
    _jobs += 1
    os.environ["STEPAF_LOCAL_SIZE"] = str(attn + ffn)
    os.environ["STEPAF_LOCAL_JOB"] = f"py-{os.getpid()}-{_jobs}"
    os.environ["STEPAF_SPLIT"] = f"attn={attn},ffn={ffn}"
    saved = dict(os.environ)
    os.environ.update(env or {})
    sys.stdout.flush()
    sys.stderr.flush()
    pids = []
    for rank in range(attn + ffn):
        pid = os.fork()
        if pid == 0:
            _be_rank(rank, body, params or {})
        pids.append(pid)
    os.environ.clear()
    os.environ.update(saved)
    return pids


def end(pids):
    """Exit codes of the ranks; those killed by a signal are negative."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


class TestCase(unittest.TestCase):
    """unittest's, with jobs."""

    def run_job(self, body, attn=1, ffn=1, env=None, params=None):
        """Run a job whose ranks must all succeed."""
        codes = end(start(body, attn, ffn, env, params))
        self.assertEqual(codes, [0] * len(codes))

    def run_apart(self, body):
        """Call body in a process of its own: what initializes CUDA, as torch's fakes do, leaves none to
        processes that are forked later."""
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                body()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        self.assertEqual(end([pid]), [0])


def until(condition, seconds=30):
    """Wait for something that another thread or rank does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("not in time")
        time.sleep(0.001)


class Signal:
    """What one rank tells another one beside the library; made before ranks are forked."""

    def __init__(self):
        self._read, self._write = os.pipe()

    def send(self):
        os.write(self._write, b"x")

    def wait(self, seconds=60):
        assert select.select([self._read], [], [], seconds)[0], "not told in time"
        os.read(self._read, 1)

    def close(self):
        os.close(self._read)
        os.close(self._write)


def main():
    """Run the tests of the program; exit code 77 if all of them were skipped."""
    result = unittest.main(module="__main__", exit=False, verbosity=2).result
    if result.testsRun and len(result.skipped) == result.testsRun:
        print("SKIP:", result.skipped[0][1])
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
