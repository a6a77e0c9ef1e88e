# SPDX-License-Identifier: Apache-2.0
"""The synchronous connector, whose FFN ranks are driven by the control plane."""
# mypy: disallow-subclassing-any=False

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional

import torch
from afd_plugin.connectors import (AFDA2FTransferPayload, AFDConnectorBase, AFDControlPayload,
                                   AFDControlPlane, AFDDPMetadata, AFDTransferContext,
                                   AFDTransferMetadata, AFDTransferState)

from .._context import Context
from .._core import Batch
from . import _ops
from ._device import AttentionStages, FfnStages
from ._link import CONTROL, Control, Inbox, join
from ._settings import StepafExtraInfo, shape_of
from ._topology import Topology, parts


@dataclass
class StepafTransferState(AFDTransferState):
    """What an FFN rank has received and is to answer."""

    stage: int = 0
    batches: List[Batch] = field(default_factory=list)


class StepafAFDConnector(AFDConnectorBase):
    """Rows of every attention rank go to the FFN ranks of its group, and their answers come back."""

    def __init__(self, rank: int, local_rank: int, vllm_config: Any, afd_config: Any,
                 role_rank: int) -> None:
        super().__init__(rank, local_rank, vllm_config, afd_config, role_rank)
        self.attn_size = int(afd_config.num_attention_ranks)
        self.ffn_size = int(afd_config.num_ffn_ranks)
        self.topology = Topology(afd_config.role == "ffn", role_rank, self.attn_size, self.ffn_size,
                                 False)
        if not 0 <= role_rank < self.topology.size:
            raise ValueError(f"role_rank is {role_rank}, and the role has {self.topology.size} ranks")
        self.handle = 0
        self.control_plane = StepafControlPlane(self)
        self._context: Optional[Context] = None
        self._stages: Any = None
        self._inbox: Optional[Inbox] = None
        self._control: Optional[Control] = None

    @classmethod
    def parse_extra_config(cls, raw: Optional[Mapping[str, Any]]) -> StepafExtraInfo:
        """Raises TypeError or ValueError, which name the setting."""
        return StepafExtraInfo.from_mapping(raw)

    def init_afd_connector(self) -> None:
        """Join the job and make all plans and buffers. Collective, either role first; idempotent."""
        if self._context is not None:
            return
        shape = shape_of(self.vllm_config, self.afd_config, self.extra_info)
        if shape.device == "cuda":
            torch.cuda.set_device(self.local_rank)
        context = join(self.topology, self.afd_config.host, int(self.afd_config.port),
                       self.extra_info.init_timeout_s)
        try:
            control = Control(context, self.topology, shape.stages)
            inbox = Inbox(context)
            stages: Any = FfnStages(context, self.topology, shape, inbox) if self.topology.is_ffn \
                else AttentionStages(context, self.topology, shape)
            stages.timeout = self.extra_info.timeout_s or None
            context.commit()
            stages.ready()
        except BaseException:
            context.close()
            raise
        self._stages, self._inbox, self._control = stages, inbox, control
        self.handle = _ops.number(stages)
        self._context = context

    @property
    def is_initialized(self) -> bool:
        return self._context is not None

    def close(self) -> None:
        """Leave the job. Receives that are pending in other threads end with CanceledError."""
        context, self._context = self._context, None
        if self._inbox is not None:
            self._inbox.close()
        self._stages = self._inbox = self._control = None
        if context is not None:
            context.close()

    def _need(self, part: Any) -> Any:
        if part is None:
            raise RuntimeError("the connector is not initialized")
        return part

    def send_attn_output(self, hidden_states: torch.Tensor, context: AFDTransferContext,
                         **kwargs: Any) -> None:
        """Send rows, with router_logits if given, and return at once."""
        if not torch.compiler.is_compiling():
            self._need(self._context)
            if not context.metadata.validate_tensor_shape(tuple(hidden_states.shape)):
                raise ValueError(f"hidden_states are {tuple(hidden_states.shape)}, and the metadata "
                                 f"says {context.metadata.total_tokens} rows")
        torch.ops.stepaf_afd.send(hidden_states, kwargs.get("router_logits"),
                                  context.metadata.stage_idx, self.handle)

    def recv_ffn_output(self, ref_tensor: torch.Tensor, ubatch_idx: int = 0,
                        **kwargs: Any) -> torch.Tensor:
        """Receive the answer to what was sent last by this microbatch into ref_tensor."""
        if not torch.compiler.is_compiling():
            self._need(self._context)
        torch.ops.stepaf_afd.recv(ref_tensor, ubatch_idx, self.handle)
        return ref_tensor

    def recv_attn_output(self, ubatch_idx: int = 0, **kwargs: Any) -> AFDA2FTransferPayload:
        """Receive the rows of all peers, in rank order. What is returned is valid until it is answered."""
        stages = self._need(self._stages)
        spec = kwargs.get("routing_spec")
        got, batches = stages.recv(ubatch_idx, self.control_plane.counts(ubatch_idx))
        rows = [each[0] for each in got]
        logits = None
        if spec is not None:
            width, dtype = spec
            each_bytes = width * torch.empty((), dtype=dtype).element_size()
            tables = [each[1][:each[0].shape[0] * each_bytes].view(dtype).view(-1, width) for each in got]
            logits = torch.cat(tables) if len(tables) > 1 else tables[0]
        metadata = AFDTransferMetadata(0, ubatch_idx, [each.shape[0] for each in rows])
        state = StepafTransferState(ubatch_idx, batches)
        return AFDA2FTransferPayload(torch.cat(rows) if len(rows) > 1 else rows[0],
                                     AFDTransferContext(metadata, state), logits)

    def send_ffn_output(self, ffn_output: torch.Tensor, context: AFDTransferContext,
                        **kwargs: Any) -> None:
        """Answer each peer with its rows, by seq_lens."""
        stages = self._need(self._stages)
        if not isinstance(context.states, StepafTransferState):
            raise RuntimeError("the context is not that of a receive of this connector")
        if not context.metadata.validate_tensor_shape(tuple(ffn_output.shape)):
            raise ValueError(f"ffn_output is {tuple(ffn_output.shape)}, and the metadata says "
                             f"{context.metadata.total_tokens} rows")
        slices = torch.split(ffn_output, context.metadata.seq_lens)
        stages.send(context.states.stage, slices, context.states.batches)


class StepafControlPlane(AFDControlPlane):
    """Token counts of a step, by messages in host memory."""

    def __init__(self, connector: StepafAFDConnector) -> None:
        self.connector = connector
        self._tokens: Dict[int, List[int]] = {}

    def counts(self, stage: int) -> Optional[List[int]]:
        """Rows that each peer sends to this FFN rank in a stage."""
        tokens, topology = self._tokens.get(stage), self.connector.topology
        if not tokens:
            return None
        each = max(topology.attention // len(tokens), 1)  # ranks of one data-parallel rank
        rows = [max(tokens[min(peer // each, len(tokens) - 1)], 1) for peer in topology.peers()]
        if len(rows) > 1 or topology.ffn <= topology.attention:
            return rows
        mates = Topology(False, topology.peers()[0], topology.attention, topology.ffn, False).peers()
        begin, end, _ = parts(rows[0], len(mates))[mates.index(topology.role_rank)]
        return [end - begin]

    def update_state_from_dp_metadata(self, payload: AFDControlPayload) -> None:
        """Take the counts of a step."""
        self._tokens = {int(stage): each.num_tokens_across_dp_cpu.flatten().tolist()
                        for stage, each in payload.dp_metadata_list.items()}

    def send_dp_metadata_list(self, payload: AFDControlPayload) -> None:
        """Tell the FFN ranks of the group; nothing on ranks that do not speak for it."""
        stages = {str(stage): each.num_tokens_across_dp_cpu.flatten().tolist()
                  for stage, each in payload.dp_metadata_list.items()}
        self.connector._need(self.connector._control).send(
            {"stages": stages, "capturing": bool(payload.is_graph_capturing),
             "warmup": bool(payload.is_warmup)})

    def recv_dp_metadata_list(self) -> AFDControlPayload:
        """Wait for the next message, however long; close() ends that."""
        inbox = self.connector._need(self.connector._inbox)
        said = Control.read(inbox.take([(CONTROL, 0)], None))
        stages = {int(stage): AFDDPMetadata(num_tokens_across_dp_cpu=torch.tensor(each, dtype=torch.int32))
                  for stage, each in said["stages"].items()}
        return AFDControlPayload(stages, bool(said["capturing"]), bool(said["warmup"]))


__all__ = ["StepafAFDConnector", "StepafControlPlane", "StepafTransferState"]
