"""Windows: sliding and local attention

Each query reads 256 neighbors and itself: the 256 before it ("causal"), or 128 on either side. Two heads of 64. The
dense mask is built beforehand and its building is not timed; its memory counts. From some length on the dense form
does not fit, and our line goes on alone. Luong's local attention reads 2·10+1 cells around a center, at length 2048.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import foci
from benchmarks.groups.heads import copy_projections
from benchmarks.harness import FORWARD, TRAIN, Call, Case, Side, call, leaf
from foci import masks
from foci.mechanisms.heads import MultiHeadAttention

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
QUICK_LENGTHS = (1024, 2048, 4096)
LONGEST_DENSE = 16384
CAUSAL = (256, 0)
HEADS, SIZE = 2, 64


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """The cases against one peer."""
    for measure in (FORWARD, TRAIN):
        for length in QUICK_LENGTHS if quick else LENGTHS:
            if quick and measure == TRAIN and length == QUICK_LENGTHS[-1]:
                continue
            if peer == "transformers":
                if length <= LONGEST_DENSE:  # the slope is clear by then
                    yield _longformer(measure, length)
            else:
                yield _sliding(measure, length, peer)
        if peer == "torch":
            length = 512 if quick else 2048
            yield _local(measure, "local_m", length)
            yield _local(measure, "local_m", length, fused=True)
            yield _local(measure, "local_p", length)


def _sliding(measure: str, length: int, peer: str) -> Case:
    def inputs() -> tuple[Tensor, ...]:
        return tuple(leaf(1, HEADS, length, SIZE) for _ in range(3))

    def ours(*inputs: Tensor) -> Call:
        return call(measure, lambda: foci.attend(*inputs, window=CAUSAL).output, inputs)

    def dense(query: Tensor, key: Tensor, value: Tensor) -> Call:
        mask = masks.window(length, length, *CAUSAL)[0]  # two axes: with three, torch takes its slow path
        read = partial(F.scaled_dot_product_attention, query, key, value, attn_mask=mask)
        return call(measure, read, (query, key, value))

    def local_attention(*inputs: Tensor) -> Call:
        from local_attention import LocalAttention

        attention = LocalAttention(CAUSAL[0], causal=True, exact_windowsize=True, use_rotary_pos_emb=False)
        return call(measure, lambda: attention(*inputs), inputs)

    goals = {(FORWARD, 16384): 25.0, (TRAIN, 16384): 8.0}
    sides: dict[str, Side] = {"torch": dense, "local-attention": local_attention}
    return Case(
        name=f"causal window 256, length {length}",
        against={"torch": "dense mask", "local-attention": "LocalAttention"}[peer],
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs=None if peer == "torch" and length > LONGEST_DENSE else sides[peer],
        goal=goals.get((measure, length)) if peer == "torch" else 1.0,
        memory_goal=10.0 if peer == "torch" and length == 16384 else None,
        series="causal window 256",
        length=length,
    )


def _longformer(measure: str, length: int) -> Case:
    def inputs() -> tuple[nn.Module, Tensor]:
        attention = foci.build("multi_head", model_dim=HEADS * SIZE, num_heads=HEADS, window=(128, 128))
        return attention, leaf(1, length, HEADS * SIZE)

    def ours(attention: MultiHeadAttention, x: Tensor) -> Call:
        return call(measure, lambda: attention(x, x).output, (x,), list(attention.parameters()))

    def theirs(attention: MultiHeadAttention, x: Tensor) -> Call:
        from transformers import LongformerConfig
        from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

        config = LongformerConfig(
            hidden_size=HEADS * SIZE,
            num_attention_heads=HEADS,
            attention_window=[256],
            attention_probs_dropout_prob=0.0,
        )
        peer = LongformerSelfAttention(config, 0)  # type: ignore[no-untyped-call]
        copy_projections(attention, peer, ("query", "key", "value"))
        nothing = torch.zeros(1, length)
        read = partial(
            peer,
            attention_mask=nothing,
            is_index_masked=nothing.bool(),
            is_index_global_attn=nothing.bool(),
            is_global_attn=False,
        )
        layers = (peer.query, peer.key, peer.value, attention.output_layer)  # it has no output layer: ours is added
        parameters = [parameter for layer in layers for parameter in layer.parameters()]
        return call(measure, lambda: attention.output_layer(read(x)[0]), (x,), parameters)

    return Case(
        name=f"two-sided window 256, length {length}",
        against="LongformerSelfAttention",
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs=theirs,
        goal=1.0,
        series="two-sided window 256",
        length=length,
    )


def _local(measure: str, name: str, length: int, fused: bool = False) -> Case:
    size, radius = 64, 10

    def inputs() -> tuple[nn.Module, Tensor, Tensor]:
        attention = foci.catalog.card(name).builder(query_dim=size, key_dim=size, radius=radius)
        return attention, leaf(1, length, size), leaf(1, length, size)

    def ours(attention: Any, query: Tensor, key: Tensor) -> Call:
        return call(measure, lambda: attention(query, key).output, (query, key), list(attention.parameters()))

    def theirs(attention: Any, query: Tensor, key: Tensor) -> Call:
        cells = torch.arange(length)

        def read() -> Tensor:
            scores = attention.score(query, key)
            if name == "local_m":
                distance = (cells - cells.unsqueeze(-1)).unsqueeze(0)
            else:
                focus = attention.focus
                center = length * torch.sigmoid(torch.tanh(focus.layer(query)) @ focus.vector)
                distance = cells - center.unsqueeze(-1)
            weights = torch.softmax(scores.masked_fill(distance.abs() > radius, -torch.inf), dim=-1)
            if name == "local_p":
                weights = weights * torch.exp(-distance.square() / (2 * (radius / 2) ** 2))
            return weights @ key

        return call(measure, read, (query, key), list(attention.parameters()))

    def theirs_fused(attention: Any, query: Tensor, key: Tensor) -> Call:
        near = masks.window(length, length, radius, radius)[0]

        def read() -> Tensor:
            projected = attention.score.project_key(key).unsqueeze(1)
            kernel = F.scaled_dot_product_attention
            return kernel(query.unsqueeze(1), projected, key.unsqueeze(1), attn_mask=near, scale=1.0).squeeze(1)

        return call(measure, read, (query, key), list(attention.parameters()))

    return Case(
        name=f"{name}, radius {radius}, (1, {length}, {length}, {size})",
        against="fused kernel, dense mask" if fused else "masked dense form",
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs=theirs_fused if fused else theirs,
        goal=20.0 if length == 2048 and not fused else None,
        memory_goal=20.0 if measure == FORWARD and length == 2048 and not fused else None,
    )
