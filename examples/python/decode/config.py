# SPDX-License-Identifier: Apache-2.0
"""What config.json says of a Qwen3-MoE model."""

import dataclasses
import os

from checkpoint import ModelError, read_json


@dataclasses.dataclass
class Config:
    """Sizes of a model; names as in the glossary, not as in config.json."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    top_k: int
    width: int
    vocab: int
    positions: int
    eps: float = 1e-6
    theta: float = 1e4
    norm_topk: bool = True
    tied: bool = False

    def __post_init__(self):
        if self.heads % self.kv_heads or self.head_dim % 2 or self.top_k > self.experts:
            raise ModelError("heads are not a multiple of key-value heads, or the head size is odd, or "
                             "more experts are chosen than there are")


def _number(path, config, name, kind=int, low=1, default=None):
    value = config.get(name, default)
    kinds = (int, float) if kind is float else (int,)
    if not isinstance(value, kinds) or isinstance(value, bool) or not low <= value <= 1 << 24:
        raise ModelError(f"{path}: {name} is {value!r}")
    return kind(value)


def read_config(directory):
    """The configuration of a model directory; ModelError for what this program does not compute."""
    path = os.path.join(directory, "config.json")
    config = read_json(path)
    if config.get("model_type") != "qwen3_moe":
        raise ModelError(f"{path}: model_type is {config.get('model_type')!r}, not 'qwen3_moe'")
    rope = config.get("rope_parameters") or {}
    for what, plain in (("decoder_sparse_step", config.get("decoder_sparse_step", 1) == 1),
                        ("mlp_only_layers", not config.get("mlp_only_layers")),
                        ("attention_bias", not config.get("attention_bias")),
                        ("rope_scaling", not config.get("rope_scaling")),
                        ("rope_parameters", isinstance(rope, dict)
                         and rope.get("rope_type", "default") == "default"),
                        ("use_sliding_window", not config.get("use_sliding_window")),
                        ("hidden_act", config.get("hidden_act", "silu") == "silu")):
        if not plain:
            raise ModelError(f"{path}: {what} is {config.get(what)!r}, which this program does not know")

    def size(name, default=None):
        return _number(path, config, name, default=default)

    hidden, heads = size("hidden_size"), size("num_attention_heads")
    return Config(
        hidden=hidden, layers=size("num_hidden_layers"), heads=heads,
        kv_heads=size("num_key_value_heads", heads),
        head_dim=size("head_dim", hidden // heads), experts=size("num_experts"),
        top_k=size("num_experts_per_tok"), width=size("moe_intermediate_size"),
        vocab=size("vocab_size"), positions=size("max_position_embeddings"),
        eps=_number(path, config, "rms_norm_eps", float, 0, 1e-6),
        theta=_number(path, {**rope, **config}, "rope_theta", float, 1, 1e4),
        norm_topk=bool(config.get("norm_topk_prob", False)),
        tied=bool(config.get("tie_word_embeddings", False)))
