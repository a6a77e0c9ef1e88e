# SPDX-License-Identifier: Apache-2.0
"""The connector's own settings ("connector_extra_config"), and what vLLM's configuration tells."""
# mypy: disallow-subclassing-any=False

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Dict, Mapping, NamedTuple, Optional

import torch
from afd_plugin.connectors import ConnectorExtraInfo


@dataclass(frozen=True)
class StepafExtraInfo(ConnectorExtraInfo):
    """Settings; 0 or "" is what vLLM's configuration says."""

    max_tokens: int = 0
    """Rows of a microbatch."""
    num_stages: int = 0
    """Microbatches that are in flight at once."""
    device: str = ""
    """"cpu" or "cuda", of the exchanged tensors."""
    init_timeout_s: float = 600.0
    timeout_s: float = 0.0
    """Of a wait for a peer's tensor on the host; 0: the setting STEPAF_TIMEOUT_US."""

    @classmethod
    def from_mapping(cls, raw: Optional[Mapping[str, Any]]) -> StepafExtraInfo:
        """Check and take the settings. Raises TypeError and ValueError, which name the setting."""
        if raw is None:
            raw = {}
        if not isinstance(raw, Mapping):
            raise TypeError(f"connector_extra_config is {type(raw).__name__}, not a mapping")
        known = {field.name: field for field in fields(cls)}
        unknown = sorted(str(key) for key in raw if key not in known)
        if unknown:
            raise ValueError(f"connector_extra_config has no setting {', '.join(unknown)}; there are "
                             f"{', '.join(known)}")
        for name, value in raw.items():
            default = known[name].default
            if isinstance(default, str):
                if value not in ("", "cpu", "cuda"):
                    raise ValueError(f"connector_extra_config: {name} is {value!r}, not cpu or cuda")
            elif (isinstance(value, bool) or not isinstance(value, (int, float))
                  or isinstance(default, int) and not isinstance(value, int)):
                raise TypeError(f"connector_extra_config: {name} is {value!r}, not a number")
            elif not 0 <= value < float("inf"):
                raise ValueError(f"connector_extra_config: {name} is {value!r}, which is out of range")
        return cls(**raw)

    def to_mapping(self) -> Dict[str, Any]:
        return asdict(self)


class Shape(NamedTuple):
    """What is exchanged: sizes of buffers, which all ranks have to see alike."""

    stages: int
    tokens: int
    hidden: int
    dtype: torch.dtype
    device: str
    experts: int
    top_k: int
    gate: bool
    """Router logits come with the rows."""


def experts_of(vllm_config: Any) -> int:
    """The model's number of routed experts; 0 if it names none."""
    hf = vllm_config.model_config.hf_config
    return int(next((getattr(hf, name) for name in ("n_routed_experts", "num_experts", "num_local_experts")
                     if getattr(hf, name, None)), 0))


def shape_of(vllm_config: Any, afd_config: Any, extra: StepafExtraInfo) -> Shape:
    """Read vLLM's configuration."""
    model = vllm_config.model_config
    hf = model.hf_config
    parallel = vllm_config.parallel_config
    stages = extra.num_stages
    if not stages:
        stages = int(getattr(parallel, "num_ubatches", 1)) if getattr(parallel, "use_ubatching", False) \
            else 1
    device = extra.device or ("cuda" if torch.cuda.is_available() else "cpu")
    tokens = extra.max_tokens or int(vllm_config.scheduler_config.max_num_batched_tokens)
    made = Shape(max(stages, 1), tokens, int(hf.hidden_size), model.dtype, device, experts_of(vllm_config),
                 int(getattr(hf, "num_experts_per_tok", 0) or 0),
                 bool(afd_config.compute_gate_on_attention))
    if made.gate and not made.experts:
        raise ValueError("compute_gate_on_attention is set, and the model names no number of experts")
    return made
