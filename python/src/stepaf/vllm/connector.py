# SPDX-License-Identifier: Apache-2.0
"""The synchronous connector, whose FFN ranks are driven by the control plane."""
# mypy: disallow-subclassing-any=False

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

import torch
from afd_plugin.connectors import (AFDA2FTransferPayload, AFDControlPayload, AFDControlPlane,
                                   AFDDPMetadata, AFDTransferContext, AFDTransferMetadata,
                                   AFDTransferState)

from .._context import Context
from .._core import Batch
from ._base import Connector
from ._device import AttentionStages, FfnStages
from ._link import CONTROL, Control, Inbox
from ._settings import Shape
from ._stages import logits_of
from ._topology import Topology, parts


@dataclass
class StepafTransferState(AFDTransferState):
    """What an FFN rank has received and is to answer."""

    stage: int = 0
    batches: List[Batch] = field(default_factory=list)


class StepafAFDConnector(Connector):
    """Rows of every attention rank go to the FFN ranks of its group, and their answers come back."""

    def __init__(self, rank: int, local_rank: int, vllm_config: Any, afd_config: Any,
                 role_rank: int) -> None:
        super().__init__(rank, local_rank, vllm_config, afd_config, role_rank)
        self.control_plane = StepafControlPlane(self)
        self._control: Optional[Control] = None

    def _make_stages(self, context: Context, shape: Shape, inbox: Inbox) -> Any:
        self._control = Control(context, self.topology, shape.stages)
        stages: Any = FfnStages(context, self.topology, shape, inbox) if self.topology.is_ffn \
            else AttentionStages(context, self.topology, shape)
        stages.timeout = self.extra_info.timeout_s or None
        return stages

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
        plane = self.control_plane
        got, batches = stages.recv(ubatch_idx, plane.counts(ubatch_idx), plane.is_warmup)
        rows = [each[0] for each in got]
        logits = None
        if spec is not None:
            width, dtype = spec
            tables = [logits_of(each[1], each[0].shape[0], width, dtype) for each in got]
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
        self.is_warmup = False
        """Whether there is time to compare what arrives with the counts, also on a GPU."""

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
        """Take the counts of a step. Raises what a step before has failed with on a stream."""
        if self.connector.is_initialized:
            self.connector.check()
        self.is_warmup = bool(payload.is_warmup) and not payload.is_graph_capturing
        self._tokens = {int(stage): each.num_tokens_across_dp_cpu.flatten().tolist()
                        for stage, each in payload.dp_metadata_list.items()}

    def send_dp_metadata_list(self, payload: AFDControlPayload) -> None:
        """Tell the FFN ranks of the group; nothing on ranks that do not speak for it."""
        stages = {str(stage): each.num_tokens_across_dp_cpu.flatten().tolist()
                  for stage, each in payload.dp_metadata_list.items()}
        self.connector._need(self.connector._context)
        self.connector._need(self.connector._control).send(
            {"stages": stages, "capturing": bool(payload.is_graph_capturing),
             "warmup": bool(payload.is_warmup)})

    def recv_dp_metadata_list(self) -> AFDControlPayload:
        """Wait for the next message, however long; close() ends that. Raises ProtocolError for a message
        that send_dp_metadata_list has not made."""
        inbox = self.connector._need(self.connector._inbox)
        counts, capturing, warmup = Control.read(inbox.take([(CONTROL, 0)], None))
        stages = {stage: AFDDPMetadata(num_tokens_across_dp_cpu=torch.tensor(each, dtype=torch.int32))
                  for stage, each in counts.items()}
        return AFDControlPayload(stages, capturing, warmup)


__all__ = ["StepafAFDConnector", "StepafControlPlane", "StepafTransferState"]
