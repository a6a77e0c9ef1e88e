# SPDX-License-Identifier: Apache-2.0
"""The choice of experts on attention ranks, by torch alone: nothing in it waits for a GPU."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch


def select_experts(*, router_logits: torch.Tensor, top_k: int, use_grouped_topk: bool = False,
                   renormalize: bool = True, scoring_func: str = "softmax",
                   num_expert_group: Optional[int] = None, topk_group: Optional[int] = None,
                   routed_scaling_factor: float = 1.0,
                   e_score_correction_bias: Optional[torch.Tensor] = None, mix_placement: bool = False,
                   **unused: Any) -> Tuple[torch.Tensor, torch.Tensor]:
    """(weights, ids) of the top_k experts of each row, float32 and int32; the likeliest first.

    With groups, experts are chosen from the topk_group best of num_expert_group groups. A group counts by
    its best expert, or, with e_score_correction_bias, by the sum of its best two. The bias decides which
    experts are chosen, and is not in the weights. Other parameters of vLLM's change nothing here.
    """
    if mix_placement:
        raise NotImplementedError("mix_placement: shared experts are not placed among routed ones")
    if scoring_func == "softmax":
        scores = router_logits.float().softmax(-1)
    elif scoring_func == "sigmoid":
        scores = router_logits.float().sigmoid()
    else:
        raise ValueError(f"scoring_func is {scoring_func!r}, not softmax or sigmoid")
    biased = scores if e_score_correction_bias is None else scores + e_score_correction_bias.float()
    groups = num_expert_group or 1
    if use_grouped_topk and groups > 1:
        rows, experts = scores.shape
        if experts % groups:
            raise ValueError(f"{experts} experts are not {groups} groups")
        parts = biased.view(rows, groups, -1)
        best = parts.amax(-1) if e_score_correction_bias is None else parts.topk(2, -1).values.sum(-1)
        chosen = best.topk(topk_group or 1, -1, sorted=False).indices
        allowed = torch.zeros_like(best, dtype=torch.bool).scatter_(1, chosen, True)
        biased = parts.masked_fill(~allowed.unsqueeze(-1), float("-inf")).view(rows, experts)
    ids = biased.topk(top_k, -1).indices
    weights = scores.gather(1, ids)
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights * routed_scaling_factor, ids.to(torch.int32)
