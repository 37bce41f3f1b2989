"""The DFlash draft in torch: the reference that training and exact checks use.

The draft has no embedding and no head of its own. It reads the outputs of some target layers (the taps) at every
position already decided, and fills a block of masks in one pass: all positions of a block see each other, no position
sees another block.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class RMSNorm(nn.Module):  # type: ignore[misc]
    """Root-mean-square norm over the last dimension, times a gain."""

    def __init__(self, size: int, eps: float) -> None:
        """A gain of ones."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] to the same shape."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary positions in the half-split (NeoX) layout: x is [batch, heads, n, head_dim], positions [batch, n]."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions[:, None, :, None].float() * frequencies
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Attention(nn.Module):  # type: ignore[misc]
    """Attention of block positions over tapped context and their own block."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Projections of the sizes in the draft's config."""
        super().__init__()
        hidden, self.head_dim = config["hidden_size"], config["head_dim"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.theta = float(config["rope_parameters"]["rope_theta"])
        self.q_proj = nn.Linear(hidden, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, hidden, bias=False)
        self.q_norm = RMSNorm(self.head_dim, config["rms_norm_eps"])
        self.k_norm = RMSNorm(self.head_dim, config["rms_norm_eps"])

    def forward(self, x: Tensor, context: Tensor, at: Tensor, context_at: Tensor, allowed: Tensor) -> Tensor:
        """Block states [batch, n, hidden] and context [batch, m, hidden] to [batch, n, hidden].

        ``at`` [batch, n] and ``context_at`` [batch, m] are positions; ``allowed`` [batch, n, m + n] says which of the
        context (first) and block (after it) keys a query may see.
        """
        batch, count, _ = x.shape
        keys, places = torch.cat([context, x], dim=1), torch.cat([context_at, at], dim=1)
        q = self.q_norm(self.q_proj(x).view(batch, count, self.heads, self.head_dim)).transpose(1, 2)
        k = self.k_norm(self.k_proj(keys).view(batch, -1, self.kv_heads, self.head_dim)).transpose(1, 2)
        v = self.v_proj(keys).view(batch, -1, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, at, self.theta), rotate(k, places, self.theta)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed[:, None])
        result: Tensor = self.o_proj(out.transpose(1, 2).reshape(batch, count, -1))
        return result


class MLP(nn.Module):  # type: ignore[misc]
    """Gated feed-forward layer."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Projections of the sizes in the draft's config."""
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., hidden] to the same shape."""
        result: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return result


class Layer(nn.Module):  # type: ignore[misc]
    """One layer of the draft, sliding or full."""

    def __init__(self, config: dict[str, Any], index: int) -> None:
        """The layer ``index`` of ``layer_types``."""
        super().__init__()
        self.window = config["sliding_window"] if config["layer_types"][index] == "sliding_attention" else None
        self.input_layernorm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        self.mlp = MLP(config)

    def forward(self, x: Tensor, context: Tensor, at: Tensor, context_at: Tensor, allowed: Tensor) -> Tensor:
        """As :meth:`Attention.forward`, with the window of a sliding layer applied on top of ``allowed``."""
        if self.window is not None:
            # A key is out of the window when it lies ``window`` or more tokens back; keys ahead are always in it.
            distance = at[:, :, None] - torch.cat([context_at, at], dim=1)[:, None, :]
            allowed = allowed & (distance < self.window)
        x = x + self.self_attn(self.input_layernorm(x), context, at, context_at, allowed)
        result: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return result


class Draft(nn.Module):  # type: ignore[misc]
    """A DFlash draft; parameter names are the tensor names of the published layout."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Build from the content of the draft's ``config.json``."""
        super().__init__()
        hidden, taps = config["hidden_size"], len(config["dflash_config"]["target_layer_ids"])
        self.block_size: int = config["dflash_config"]["block_size"]
        self.fc = nn.Linear(taps * hidden, hidden, bias=False)
        self.hidden_norm = RMSNorm(hidden, config["rms_norm_eps"])
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config["num_hidden_layers"]))
        self.norm = RMSNorm(hidden, config["rms_norm_eps"])

    def forward(self, features: Tensor, blocks: Tensor, anchors: Tensor) -> Tensor:
        """Fill blocks of several answers at once.

        Args:
            features: tapped target states [batch, positions, taps * hidden], taps in the order of the config.
            blocks: embeddings of the block tokens [batch, blocks, block_size, hidden]: the last decided token, masks.
            anchors: position of each block's first token [batch, blocks]; the block sees the features before it.

        Returns:
            normed states [batch, blocks, block_size, hidden], ready for the target's head.
        """
        batch, count, size, hidden = blocks.shape
        context = self.hidden_norm(self.fc(features))
        context_at = torch.arange(features.shape[1]).expand(batch, -1)
        at = (anchors[:, :, None] + torch.arange(size)).reshape(batch, count * size)
        before = context_at[:, None, :] < anchors.repeat_interleave(size, dim=1)[:, :, None]
        own = torch.arange(count).repeat_interleave(size)
        same = (own[:, None] == own[None, :]).expand(batch, -1, -1)
        allowed = torch.cat([before, same], dim=2)
        x = blocks.reshape(batch, count * size, hidden)
        for layer in self.layers:
            x = layer(x, context, at, context_at, allowed)
        result: Tensor = self.norm(x).view(batch, count, size, hidden)
        return result
