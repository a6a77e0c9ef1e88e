# SPDX-License-Identifier: Apache-2.0
"""The asynchronous connector: no control plane; FFN ranks are driven by what arrives."""
# mypy: disallow-subclassing-any=False

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Tuple

import torch
from afd_plugin.connectors import (AFDA2FTransferPayload, AFDF2ATransferPayload, AFDTransferContext,
                                   AFDTransferMetadata, AFDTransferState)

from .._context import Context
from ._base import Connector
from ._link import Inbox
from ._select import select_experts
from ._settings import Shape, experts_of
from ._work import Arrival, WorkAttention, WorkFfn


@dataclass
class StepafWorkState(AFDTransferState):
    """What an FFN rank has received of one attention rank: see StepafWorkItem."""

    arrival: Optional[Arrival] = None
    topk_ids: Optional[torch.Tensor] = None
    """Of all rows: numbers of experts, int32."""
    topk_weights: Optional[torch.Tensor] = None
    first_expert: int = 0
    """The FFN rank's own experts: this one and those behind it."""
    n_experts: int = 0
    expand_x_shared: Optional[torch.Tensor] = None
    """The rows whose shared experts this rank computes."""
    first_shared: int = 0
    group_list: Optional[torch.Tensor] = None
    dynamic_scales: Optional[torch.Tensor] = None
    dynamic_scales_shared: Optional[torch.Tensor] = None


@dataclass
class StepafWorkItem:
    """A batch of one attention rank: all of its rows, with the experts that each has chosen. The FFN rank
    computes its own experts, weights them, and answers with a row for each row; attention ranks add up
    the answers of all FFN ranks."""

    hidden_states: torch.Tensor
    context: AFDTransferContext
    recv_output: AFDA2FTransferPayload
    layer_idx: int
    stage_idx: int
    num_tokens: int
    total_num_tokens: int
    shared_num_tokens: int
    sender: int
    """The attention rank."""


class StepafAsyncAFDConnector(Connector):
    """Rows of every attention rank go to all FFN ranks, which serve them as they come."""

    full = True
    control_plane = None
    # Of FFN ranks: a receive is enqueued before there is anything to receive, and who is idle has not failed.
    defaults = {"STEPAF_STREAM_TIMEOUT_US": "3600000000"}

    def __init__(self, rank: int, local_rank: int, vllm_config: Any, afd_config: Any,
                 role_rank: int) -> None:
        super().__init__(rank, local_rank, vllm_config, afd_config, role_rank)
        self.n_experts = experts_of(vllm_config)
        self.expert_per_rank = -(-max(self.n_experts, 1) // self.ffn_size)

    def _make_stages(self, context: Context, shape: Shape, inbox: Inbox) -> Any:
        stages: Any = WorkFfn(context, self.topology, shape, inbox) if self.topology.is_ffn \
            else WorkAttention(context, self.topology, shape)
        stages.timeout = self.extra_info.timeout_s or None
        return stages

    # ---- attention ranks

    def select_experts(self, **kwargs: Any) -> Tuple[torch.Tensor, torch.Tensor]:
        """(weights, ids) of the experts of each row: see _select.select_experts."""
        return select_experts(**kwargs)

    def send_attn_output(self, hidden_states: torch.Tensor, context: AFDTransferContext,
                         **kwargs: Any) -> None:
        """Send rows with topk_ids and topk_weights to all FFN ranks, and return at once."""
        ids, weights = kwargs.get("topk_ids"), kwargs.get("topk_weights")
        if ids is None or weights is None:
            raise RuntimeError("send_attn_output needs topk_ids and topk_weights")
        metadata = context.metadata
        if not torch.compiler.is_compiling():
            self._need(self._context)
            if not metadata.validate_tensor_shape(tuple(hidden_states.shape)):
                raise ValueError(f"hidden_states are {tuple(hidden_states.shape)}, and the metadata says "
                                 f"{metadata.total_tokens} rows")
        torch.ops.stepaf_afd.send_routed(hidden_states, ids, weights, metadata.layer_idx, metadata.stage_idx,
                                         self.handle)

    def recv_ffn_output(self, ref_tensor: torch.Tensor, ubatch_idx: int = 0, **kwargs: Any) -> torch.Tensor:
        """Receive what all FFN ranks have answered to what this microbatch has sent last, added up in their
        order, into ref_tensor."""
        if not torch.compiler.is_compiling():
            self._need(self._context)
        torch.ops.stepaf_afd.recv(ref_tensor, ubatch_idx, self.handle)
        return ref_tensor

    # ---- FFN ranks

    def recv_attn_output(self, ubatch_idx: int = 0, *, routed_out: Optional[torch.Tensor] = None,
                         timeout_ms: Optional[float] = None) -> AFDA2FTransferPayload:
        """Receive the next batch of any attention rank and stage; the context says which. ubatch_idx changes
        nothing. routed_out: where the rows are copied to. timeout_ms: TimeoutError after that; without it,
        close() ends the wait."""
        if not isinstance(ubatch_idx, int):
            raise TypeError(f"ubatch_idx is a {type(ubatch_idx).__name__}, not a number: a buffer is routed_out=")
        stages = self._need(self._stages)
        arrival = stages.recv(None if timeout_ms is None else timeout_ms / 1000)
        rows, hidden = arrival.hidden.shape[0], arrival.hidden
        if routed_out is not None:
            hidden = routed_out[:rows].copy_(arrival.hidden)
        place, size = self.role_rank, self.ffn_size
        begin, end = place * rows // size, (place + 1) * rows // size
        first = min(place * self.expert_per_rank, self.n_experts)
        state = StepafWorkState(arrival, arrival.ids, arrival.weights, first,
                                min(first + self.expert_per_rank, self.n_experts) - first,
                                hidden[begin:end], begin)
        metadata = AFDTransferMetadata(arrival.layer, arrival.stage, [rows])
        return AFDA2FTransferPayload(hidden, AFDTransferContext(metadata, state))

    def send_ffn_output(self, ffn_output: torch.Tensor, context: AFDTransferContext, **kwargs: Any) -> None:
        """Answer the attention rank that has sent the batch of the context."""
        stages = self._need(self._stages)
        state = context.states
        if not isinstance(state, StepafWorkState) or state.arrival is None:
            raise RuntimeError("the context is not that of a receive of this connector")
        stages.send(state.arrival, ffn_output)

    def recv_ffn_work_item(self, *, stage_idx: int = 0, max_num_tokens: int = 0,
                           timeout_ms: Optional[float] = None) -> StepafWorkItem:
        """Receive the next batch of any attention rank and stage: which ones, the item says. stage_idx and
        max_num_tokens change nothing: what has arrived is served first."""
        payload = self.recv_attn_output(stage_idx, timeout_ms=timeout_ms)
        state, metadata = payload.context.states, payload.context.metadata
        rows = metadata.total_tokens
        return StepafWorkItem(payload.hidden_states, payload.context, payload, metadata.layer_idx,
                              metadata.stage_idx, rows, rows, state.expand_x_shared.shape[0],
                              self.topology.peers()[state.arrival.peer])

    def send_ffn_work_item_output(self, work_item: StepafWorkItem, ffn_output: Any) -> Any:
        """Answer an item with a row for each of its rows, or with an AFDF2ATransferPayload, whose
        shared_output has shared_num_tokens rows. Returns what was sent."""
        if isinstance(ffn_output, AFDF2ATransferPayload):
            routed, shared = ffn_output.routed_output, ffn_output.shared_output
            if shared is not None:
                state = work_item.context.states
                begin, n = state.first_shared, work_item.shared_num_tokens
                if shared.shape[0] != n:
                    raise ValueError(f"shared_output has {shared.shape[0]} rows, not {n}")
                routed = routed.clone()
                routed[begin:begin + n] += shared
        else:
            routed = ffn_output
        self.send_ffn_output(routed, work_item.context)
        return ffn_output


__all__ = ["StepafAsyncAFDConnector", "StepafWorkItem", "StepafWorkState"]
