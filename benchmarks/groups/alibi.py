"""ALiBi: a linear bias of the distance

Causal multi-head attention with ALiBi, projections included, sizes (batch, length, model, heads). The dense form adds
a float mask with a number for each head, query and key; it is built beforehand and its building is not timed.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import foci
from benchmarks.groups.heads import copy_projections
from benchmarks.harness import FORWARD, TRAIN, Call, Case, call, leaf
from foci import masks
from foci.functional.positions import alibi
from foci.mechanisms.heads import MultiHeadAttention

SHAPES = ((8, 256, 512, 8), (1, 2048, 512, 8), (1, 4096, 512, 8))
QUICK = ((1, 512, 256, 4),)


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """The cases against one peer."""
    for shape in QUICK if quick else SHAPES:
        for measure in (FORWARD, TRAIN):
            yield _case(peer, measure, shape)


def _case(peer: str, measure: str, shape: tuple[int, int, int, int]) -> Case:
    batch, length, size, heads = shape

    def inputs() -> tuple[nn.Module, Tensor]:
        attention = foci.build("multi_head", model_dim=size, num_heads=heads, alibi=True, causal=True, bias=False)
        return attention, leaf(batch, length, size)

    def ours(attention: MultiHeadAttention, x: Tensor) -> Call:
        return call(measure, lambda: attention(x, x).output, (x,), list(attention.parameters()))

    def dense(attention: MultiHeadAttention, x: Tensor) -> Call:
        bias = alibi(heads, length, length).masked_fill(~masks.causal(length), -torch.inf)
        layers = (attention.query_layer, attention.key_layer, attention.value_layer)

        def forward() -> Tensor:
            query, key, value = (layer(x).unflatten(-1, (heads, -1)).transpose(1, 2) for layer in layers)
            read = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
            output: Tensor = attention.output_layer(read.transpose(1, 2).flatten(2))
            return output

        return call(measure, forward, (x,), list(attention.parameters()))

    def x_transformers(attention: MultiHeadAttention, x: Tensor) -> Call:
        from x_transformers.x_transformers import AlibiPositionalBias, Attention

        module = Attention(size, dim_head=size // heads, heads=heads, flash=True, causal=True)
        copy_projections(attention, module, ("to_q", "to_k", "to_v", "to_out"))
        bias = AlibiPositionalBias(heads, heads)
        return call(measure, lambda: module(x, rel_pos=bias), (x,), list(module.parameters()))

    return Case(
        name=f"causal self-attention with ALiBi {shape}",
        against={"torch": "projections + fused kernel, dense bias", "x-transformers": "Attention(flash=True)"}[peer],
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs={"torch": dense, "x-transformers": x_transformers}[peer],
        goal=1.0,
        memory_goal=5.0 if peer == "torch" and measure == FORWARD and length == 4096 else None,
    )
