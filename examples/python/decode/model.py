# SPDX-License-Identifier: Apache-2.0
"""Qwen3-MoE in two parts: attention with all that belongs to a sequence, and experts.

Shapes never change and nothing depends on a value on the host, so that a CUDA graph can be made of
each part. All rows of a microbatch are at the same position: a prompt is read token by token, and a
row whose prompt has ended goes on with its own tokens.
"""

import torch
import torch.nn.functional as F


def rms_norm(x, weight, eps, out=None):
    """RMSNorm over the last dimension, in float32."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return torch.mul(normed.to(x.dtype), weight, out=out)


class Layer:
    """Weights of one layer that attention ranks hold."""

    def __init__(self, load, config, number):
        name = f"model.layers.{number}."
        c = config
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        attention = name + "self_attn."
        self.norm = load(name + "input_layernorm.weight", c.hidden)
        self.qkv = torch.cat((load(attention + "q_proj.weight", q, c.hidden),
                              load(attention + "k_proj.weight", kv, c.hidden),
                              load(attention + "v_proj.weight", kv, c.hidden)))
        self.q_norm = load(attention + "q_norm.weight", c.head_dim)
        self.k_norm = load(attention + "k_norm.weight", c.head_dim)
        self.out = load(attention + "o_proj.weight", c.hidden, q)
        self.post_norm = load(name + "post_attention_layernorm.weight", c.hidden)
        self.router = load(name + "mlp.gate.weight", c.experts, c.hidden)


class Microbatch:
    """Sequences that are decoded together, and their key-value cache."""

    def __init__(self, config, prompts, length, device, dtype):
        rows = len(prompts)
        self.prompt = torch.zeros(rows, length + 1, dtype=torch.long)
        for row, ids in enumerate(prompts):
            self.prompt[row, :len(ids)] = torch.tensor(ids)
        self.prompt = self.prompt.to(device)
        self.prompt_length = torch.tensor([len(ids) for ids in prompts], device=device)
        self.ids = self.prompt.clone()
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        shape = (config.layers, 2, rows, config.kv_heads, length, config.head_dim)
        self.cache = torch.zeros(shape, device=device, dtype=dtype)
        self.hidden = torch.zeros(rows, config.hidden, device=device, dtype=dtype)

    def reset(self):
        """Back to the first position."""
        self.ids.copy_(self.prompt)
        self.position.zero_()


class Attention:
    """An attention rank's part."""

    def __init__(self, load, config, length, device):
        c = self.config = config
        self.embedding = load("model.embed_tokens.weight", c.vocab, c.hidden)
        self.layers = [Layer(load, c, number) for number in range(c.layers)]
        self.norm = load("model.norm.weight", c.hidden)
        self.head = self.embedding if c.tied else load("lm_head.weight", c.vocab, c.hidden)
        pairs = torch.arange(0, c.head_dim, 2, dtype=torch.float32) / c.head_dim
        self.positions = torch.arange(length, device=device)
        angles = torch.outer(torch.arange(length, dtype=torch.float32), c.theta ** -pairs)
        angles = torch.cat((angles, angles), -1)
        dtype = self.embedding.dtype
        self.cos, self.sin = angles.cos().to(device, dtype), angles.sin().to(device, dtype)

    def _rope(self, x, cos, sin):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    def embed(self, batch):
        """The hidden states that a step begins with."""
        ids = batch.ids.index_select(1, batch.position).squeeze(1)
        torch.index_select(self.embedding, 0, ids, out=batch.hidden)

    def layer(self, batch, number, push):
        """Attention of a layer; what FFN ranks need goes to push: hidden states, ids and weights of the
        chosen experts."""
        c, layer, rows = self.config, self.layers[number], batch.hidden.shape[0]
        groups = c.heads // c.kv_heads
        cos, sin = (table.index_select(0, batch.position) for table in (self.cos, self.sin))
        x = F.linear(rms_norm(batch.hidden, layer.norm, c.eps), layer.qkv)
        q, k, v = x.view(rows, -1, c.head_dim).split((c.heads, c.kv_heads, c.kv_heads), 1)
        q = self._rope(rms_norm(q, layer.q_norm, c.eps), cos, sin)
        k = self._rope(rms_norm(k, layer.k_norm, c.eps), cos, sin)
        keys, values = batch.cache[number]
        keys.index_copy_(2, batch.position, k.unsqueeze(2))
        values.index_copy_(2, batch.position, v.unsqueeze(2))
        # Query heads of a key-value head stand where the positions of a query usually do.
        seen = (self.positions <= batch.position).view(1, 1, 1, -1)
        q = q.reshape(rows, c.kv_heads, groups, c.head_dim)
        x = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        batch.hidden += F.linear(x.reshape(rows, -1), layer.out)
        hidden, ids, weights = push
        rms_norm(batch.hidden, layer.post_norm, c.eps, out=hidden)
        shares = F.linear(hidden, layer.router).float().softmax(-1)
        best, chosen = shares.topk(c.top_k, -1)
        ids.copy_(chosen)
        weights.copy_(best / best.sum(-1, keepdim=True) if c.norm_topk else best)

    def add(self, batch, pulls):
        """Add what FFN ranks have answered, in rank order."""
        for pull in pulls:
            batch.hidden += pull

    def choose(self, batch):
        """The likeliest token of each row, where its prompt does not say it; then the next position."""
        logits = F.linear(rms_norm(batch.hidden, self.norm, self.config.eps), self.head)
        following = batch.position + 1
        given = batch.ids.index_select(1, following).squeeze(1)
        ids = torch.where(following < batch.prompt_length, given, logits.argmax(-1))
        batch.ids.index_copy_(1, following, ids.unsqueeze(1))
        batch.position.copy_(following)


class Experts:
    """An FFN rank's part: experts e with e mod n_ffn = rank. All of them compute all rows, as one wide
    FFN; a row counts for nothing where it has not chosen the expert. With many rows for each expert, as
    decoding at scale has them, each is needed anyway."""

    def __init__(self, load, config, rank, n_ffn, device):
        self.own = torch.arange(rank, config.experts, n_ffn, device=device)
        self.width = config.width
        self.layers = []
        for number in range(config.layers):
            names = [f"model.layers.{number}.mlp.experts.{e}." for e in range(rank, config.experts, n_ffn)]
            wide, tall = (config.width, config.hidden), (config.hidden, config.width)
            self.layers.append((
                torch.cat([load(name + "gate_proj.weight", *wide) for name in names]),
                torch.cat([load(name + "up_proj.weight", *wide) for name in names]),
                torch.cat([load(name + "down_proj.weight", *tall) for name in names], 1)))

    def layer(self, number, x, ids, weights, out):
        """The weighted sum of what this rank's experts make of x."""
        gate, up, down = self.layers[number]
        share = (ids.unsqueeze(1) == self.own.view(1, -1, 1)) * weights.unsqueeze(1)
        inner = F.silu(F.linear(x, gate)) * F.linear(x, up)
        inner = inner.view(len(x), len(self.own), self.width) * share.sum(-1, keepdim=True).to(x.dtype)
        torch.mm(inner.view(len(x), -1), down.t(), out=out)
