"""Attention of fed tokens over the KV memory, through a view.

Query heads that share a key head become more query rows of that head, so keys and values are never copied out to all
heads: for few tokens reading them is what attention costs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from forerun.cache.view import Read, Span, View, Window


def attend(q: Tensor, view: View, layer: int, window: Window, scale: float | None = None) -> Tensor:
    """Queries [T, heads, head_dim], rotated, over what the view lets each of them see: [T, heads * head_dim].

    Scores are multiplied by `scale`; None is the root of head_dim, inverted.
    """
    memory = view.memory.layer[layer]
    if len(view.spans) == 1:
        return _attend_span(q, memory, view.spans[0], window, scale)
    return torch.cat([_attend_span(q[span.rows], memory, span, window, scale) for span in view.spans])


def _attend_span(q: Tensor, memory: Tensor, span: Span, window: Window, scale: float | None) -> Tensor:
    if span.grid is not None:
        q = q[span.grid]
    read, batch, kv_heads = span.reads[window], span.batch, memory.shape[1]
    tokens, heads, dim = q.shape
    group, rows = heads // kv_heads, tokens // batch
    q = q.view(batch, rows, kv_heads, group, dim).permute(0, 2, 3, 1, 4).reshape(batch, kv_heads, group * rows, dim)
    keys, values = _read(memory, read)
    out = F.scaled_dot_product_attention(q, keys, values, attn_mask=read.mask, scale=scale)  # [B, kv_heads, G * N, D]
    out = out.view(batch, kv_heads, group, rows, dim).permute(0, 3, 1, 2, 4).reshape(tokens, heads * dim)
    return out if span.home is None else out[span.home]


def _read(memory: Tensor, read: Read) -> tuple[Tensor, Tensor]:
    """Keys and values, each [B, kv_heads, S, head_dim]."""
    if isinstance(read.slots, slice):
        keys, values = memory[:, :, read.slots].unsqueeze(1)
    else:
        keys, values = memory[:, :, read.slots].transpose(1, 2)
    return keys, values
