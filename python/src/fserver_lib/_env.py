# SPDX-License-Identifier: Apache-2.0
"""StepMesh's environment, as settings of libstepaf."""

from __future__ import annotations

import os
from typing import Dict, NamedTuple, Optional

import stepaf
from stepaf import _core

from ._errors import error

ROLES = {"worker": "attention", "server": "ffn", "scheduler": "scheduler"}
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Setup(NamedTuple):
    """How this process takes part."""

    role: Optional[str]
    """attention, ffn, scheduler; None: as libstepaf finds."""
    settings: Dict[str, str]
    """Of libstepaf, for the start."""
    bytes: int
    depth: int
    gpu: Optional[int]
    same_rows: bool
    """respond_vec sends the first rows to all, as StepMesh does."""


def _number(name: str, default: Optional[int], least: int = 0) -> int:
    text = os.environ.get(name)
    if text is None or text == "":
        if default is None:
            raise error(stepaf.SettingError, f"{name} is not set")
        return default
    unit = _UNITS.get(text[-1].upper(), 1)
    digits = text[:-1] if unit > 1 else text
    if not digits.isdecimal() or int(digits) * unit < least:
        raise error(stepaf.SettingError, f"{name}={text} is not a number of at least {least}")
    return int(digits) * unit


def _choice(name: str, choices: "tuple[str, ...]") -> str:
    text = os.environ.get(name) or choices[0]
    if text not in choices:
        raise error(stepaf.SettingError, f"{name}={text} is not one of {', '.join(choices)}")
    return text


def _meeting(role: str) -> Dict[str, str]:
    """Rank, size and meeting point of a job that is started by DMLC variables."""
    group = _number("DMLC_GROUP_SIZE", 1, 1)
    counts = {"attention": group * _number("DMLC_NUM_WORKER", None, 1),
              "ffn": group * _number("DMLC_NUM_SERVER", None, 1)}
    rank = (group * _number("DMLC_NODE_RANK", 0) + _number("STEPMESH_GPU", 0)
            + _number("DMLC_RANK_OFFSET", 0))
    if rank >= counts[role]:
        raise error(stepaf.SettingError, f"rank {rank} of {counts[role]} ranks of this role (DMLC_GROUP_SIZE * "
                    "DMLC_NODE_RANK + STEPMESH_GPU + DMLC_RANK_OFFSET)")
    first = ROLES[_choice("FSERVER_LIB_ROOT", ("worker", "server"))]
    others = sum(counts[each] for each in counts if each == first and each != role)
    host = os.environ["DMLC_PS_ROOT_URI"]
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return {"STEPAF_BOOT": "tcp", "STEPAF_MEET": f"{host}:{_number('DMLC_PS_ROOT_PORT', None, 1)}",
            "STEPAF_RANK": str(others + rank), "STEPAF_SIZE": str(sum(counts.values()))}


def read() -> Setup:
    """Read the environment; raises SettingError."""
    env = os.environ
    name = env.get("DMLC_ROLE")
    if name is not None and name not in ROLES:
        raise error(stepaf.SettingError, f"DMLC_ROLE={name} is not one of {', '.join(ROLES)}")
    role = ROLES[name] if name else None
    settings: Dict[str, str] = {}
    by_hand = not any(env.get(each) for each in ("STEPAF_BOOT", "STEPAF_MEET", "STEPAF_LOCAL_SIZE"))
    if role in ("attention", "ffn") and by_hand and env.get("DMLC_PS_ROOT_URI"):
        settings = _meeting(role)
    interface = env.get("DMLC_INTERFACE", "auto")
    if interface not in ("", "auto") and not env.get("STEPAF_NET_IF"):
        settings["STEPAF_NET_IF"] = interface
    if env.get("PS_VERBOSE", "0") not in ("", "0") and not env.get("STEPAF_LOG_LEVEL"):
        settings["STEPAF_LOG_LEVEL"] = "info"
    depth = _number("FSERVER_LIB_DEPTH", 4, 1)
    if depth > _core.MAX_DEPTH:
        raise error(stepaf.SettingError, f"FSERVER_LIB_DEPTH={depth} is more than {_core.MAX_DEPTH}")
    same_rows = _choice("FSERVER_LIB_RESPOND_VEC", ("split", "first")) == "first"
    gpu = _number("STEPMESH_GPU", 0) if env.get("STEPMESH_GPU") else None
    return Setup(role, settings, _number("FSERVER_LIB_BYTES", 32 << 20, 4096), depth, gpu, same_rows)


def context(setup: Setup) -> stepaf.Context:
    """Join the job; the settings are in the environment as long as that takes."""
    saved = {name: os.environ.get(name) for name in setup.settings}
    os.environ.update(setup.settings)
    try:
        return stepaf.Context(setup.role)
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
