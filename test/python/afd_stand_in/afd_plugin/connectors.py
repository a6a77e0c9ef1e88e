# SPDX-License-Identifier: Apache-2.0
"""Names, fields and checks of afd_plugin.connectors, without vLLM."""

import importlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional


@dataclass(frozen=True)
class ConnectorExtraInfo:
    pass


class AFDConnectorBase(ABC):
    control_plane: Any = None

    def __init__(self, rank, local_rank, vllm_config, afd_config, role_rank):
        self.rank, self.local_rank, self.role_rank = rank, local_rank, role_rank
        self.vllm_config, self.afd_config = vllm_config, afd_config
        raw = vllm_config.additional_config["afd"].get("connector_extra_config", {})
        self.extra_info = self.parse_extra_config(raw)


def _need(cls, *names):
    for name in names:
        setattr(cls, name, abstractmethod(lambda self: None))
    cls.__abstractmethods__ = frozenset(names)


_need(AFDConnectorBase, "parse_extra_config", "close", "init_afd_connector", "is_initialized",
      "send_attn_output", "recv_ffn_output", "recv_attn_output", "send_ffn_output")


class AFDControlPlane(ABC):
    pass


_need(AFDControlPlane, "update_state_from_dp_metadata", "send_dp_metadata_list",
      "recv_dp_metadata_list")


@dataclass
class AFDDPMetadata:
    num_tokens_across_dp_cpu: Any


@dataclass
class AFDControlPayload:
    dp_metadata_list: dict
    is_graph_capturing: bool
    is_warmup: bool


@dataclass
class AFDTransferState:
    pass


class AFDExpertRoutingSpec(NamedTuple):
    router_logits_width: int
    router_logits_dtype: Any


@dataclass
class AFDTransferMetadata:
    layer_idx: int
    stage_idx: int
    seq_lens: list

    def __post_init__(self):
        if not self.seq_lens or min(self.seq_lens) <= 0:
            raise ValueError("sequence lengths must be positive")

    @property
    def total_tokens(self):
        return sum(self.seq_lens)

    def validate_tensor_shape(self, shape):
        return bool(shape) and shape[0] == self.total_tokens


@dataclass
class AFDTransferContext:
    metadata: AFDTransferMetadata
    states: Optional[AFDTransferState] = None


@dataclass
class AFDA2FTransferPayload:
    hidden_states: Any
    context: AFDTransferContext
    router_logits: Any = None


@dataclass
class AFDF2ATransferPayload:
    routed_output: Any
    shared_output: Any = None


class AFDConnectorFactory:
    _registry: dict = {}

    @classmethod
    def register_connector(cls, name, module_path, class_name, *, replace=False):
        if name in cls._registry and not replace:
            raise ValueError(f"{name} is registered")
        cls._registry[name] = module_path, class_name

    @classmethod
    def get_connector_class(cls, name):
        module, class_name = cls._registry[name]
        return getattr(importlib.import_module(module), class_name)
