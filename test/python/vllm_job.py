# SPDX-License-Identifier: Apache-2.0
"""Jobs of connectors for vLLM's AFD plugin: configuration as vLLM has it, and forked ranks. AFD_PLUGIN names
a directory with the plugin's source, which is then used instead of the stand-in."""

import contextlib
import os
import pathlib
import sys
import threading
import time
import traceback
import types

import job
from fserver_job import free_port

sys.path.insert(0, os.environ.get("AFD_PLUGIN") or
                str(pathlib.Path(__file__).parent / "afd_stand_in"))
try:
    import torch
except ImportError as error:
    torch = afd = None
    REASON = f"no torch: {error}"
else:
    REASON = ""
    if os.environ.get("AFD_PLUGIN"):
        for name in ("vllm", "vllm.forward_context"):
            sys.modules.setdefault(name, types.ModuleType(name))
        sys.modules["vllm.forward_context"].DPMetadata = type("DPMetadata", (), {})
    import afd_plugin.connectors as afd

    import stepaf.vllm
    stepaf.vllm.register()

HIDDEN, EXPERTS, TOP_K, TOKENS = 8, 4, 2, 16


def make(role, rank, attn, ffn, port, gate=False, extra=None, name=None):
    name = name or stepaf.vllm.CONNECTOR
    settings = {"device": "cpu", "max_tokens": TOKENS, "num_stages": 2, **(extra or {})}
    n = types.SimpleNamespace
    config = n(role=role, host="127.0.0.1", port=port, num_attention_ranks=attn, num_ffn_ranks=ffn,
               compute_gate_on_attention=gate, connector=name)
    model = n(dtype=torch.float32, hf_config=n(hidden_size=HIDDEN, num_experts=EXPERTS,
                                                          num_experts_per_tok=TOP_K))
    vllm = n(model_config=model, parallel_config=n(), scheduler_config=n(max_num_batched_tokens=TOKENS),
             additional_config={"afd": {"connector_extra_config": settings}})
    cls = afd.AFDConnectorFactory.get_connector_class(name)
    return cls(rank, 0, vllm, config, rank)


def run(attn, ffn, body, first="ffn", gate=False, extra=None, name=None):
    port, pids = free_port(), []
    ranks = [("attention", r) for r in range(attn)] + [("ffn", r) for r in range(ffn)]
    for role, rank in sorted(ranks, key=lambda each: each[0] != first):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                connector = make(role, rank, attn, ffn, port, gate, extra, name)
                if extra and extra.get("device") == "cuda":  # as vLLM's workers do, before the connector
                    world = rank + (0 if role == "attention" else attn)
                    connector.local_rank = world % torch.cuda.device_count()
                assert not connector.is_initialized
                connector.init_afd_connector()
                context = connector._context
                connector.init_afd_connector()
                assert connector.is_initialized and connector._context is context
                body(connector)
                del context
                connector.close()
                connector.close()
                assert not connector.is_initialized
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        pids.append(pid)
        time.sleep(0.1)
    return job.end(pids)


def by_turns(microbatch):
    """Run microbatch(stage, turn) in a thread for each of two stages; "with turn():" it has its turn, and then
    the other has."""
    turns, failures = [threading.Semaphore(1), threading.Semaphore(0)], []

    def run_one(stage):
        @contextlib.contextmanager
        def turn():
            assert turns[stage].acquire(timeout=60)
            yield
            turns[1 - stage].release()

        try:
            microbatch(stage, turn)
        except BaseException:
            traceback.print_exc()
            failures.append(stage)
            turns[1 - stage].release()

    threads = [threading.Thread(target=run_one, args=(stage,)) for stage in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
