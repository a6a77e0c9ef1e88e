# SPDX-License-Identifier: Apache-2.0
"""Ranks: which one a launcher has made of this process, or several started here."""

import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time

LAUNCHERS = (("STEPAF_RANK", "STEPAF_SIZE"), ("RANK", "WORLD_SIZE"),
             ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
             ("SLURM_PROCID", "SLURM_NTASKS"))


def world():
    """This process's rank and their number, or None without a launcher."""
    for rank, size in LAUNCHERS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None


def n_attention(split, world_size):
    """Attention ranks of attn=A,ffn=F, which come first; without a split the first half."""
    if split is None:
        return max(1, world_size // 2)
    found = re.fullmatch(r"attn=(\d+),ffn=(\d+)", split)
    sizes = [int(size) for size in found.groups()] if found else [0, 0]
    if not all(sizes) or sum(sizes) != world_size:
        raise ValueError(f"--split {split} is not attn=A,ffn=F of {world_size} ranks")
    return sizes[0]


def _free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(procs, returning):
    """Run this program as so many ranks of this machine; returns an exit code. One that fails ends
    the others; but from rank returning on, one that a signal ends is started again, to take its place,
    for which it may come too late."""
    env = dict(os.environ, WORLD_SIZE=str(procs), STEPAF_LOCAL_SIZE=str(procs),
               STEPAF_LOCAL_JOB=f"decode-{secrets.token_hex(8)}", MASTER_ADDR="127.0.0.1",
               MASTER_PORT=str(_free_port()))
    env.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // procs)))
    command = [sys.executable, *_flags(), *sys.argv]
    ranks, again = [], set()
    with tempfile.NamedTemporaryFile("r") as address:
        if returning < procs:
            env.setdefault("STEPAF_SECRET", secrets.token_hex(16))  # by which one that returns is known
            command += ["--address-file", address.name]

        def run(rank, **more):
            each = dict(env, RANK=str(rank), LOCAL_RANK=str(rank), STEPAF_LOCAL_RANK=str(rank), **more)
            return subprocess.Popen(command, env=each)

        try:
            for rank in range(procs):
                ranks.append(run(rank))
            while True:
                address.seek(0)
                join = address.read()
                for rank in range(returning, procs):
                    if join and (ranks[rank].poll() or 0) < 0:
                        ranks[rank] = run(rank, STEPAF_JOIN=join, STEPAF_RANK=str(rank),
                                          STEPAF_SIZE=str(procs))
                        again.add(rank)
                codes = [rank.poll() for rank in ranks]
                failed = [code for rank, code in enumerate(codes) if code and rank not in again]
                if failed or None not in codes[:returning]:
                    return abs(failed[0]) if failed else 0
                time.sleep(0.01)
        finally:
            deadline = time.monotonic() + 5
            for rank in ranks:
                try:  # a rank that others have left says so by itself
                    rank.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    rank.kill()
                    rank.wait()


def _flags():
    return ["-X", "dev"] if sys.flags.dev_mode else []
