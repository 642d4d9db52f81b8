"""Multi-head attention

Self-attention with all four projections, sizes (batch, length, model, heads). "Bare" is the least one can write: four
linear layers and torch's fused kernel. Inference and training, and both with the weights of every head. The goal
against bare is to lose no more than 5 %. The modern head is causal, with one key head for four query heads, rotary
halves, norms of query and key with a gain, and no biases; by hand its cosines and sines are computed beforehand. There
the goal is to lose no more than 3 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.harness import FORWARD, TRAIN, Call, Case, Side, call, leaf
from foci.functional.rotary_options import Rotary
from foci.mechanisms.heads import MultiHeadAttention

SHAPES = ((32, 64, 512, 8), (8, 512, 512, 8), (1, 4096, 512, 8))
QUICK = ((8, 64, 256, 4), (1, 512, 256, 4))
MODERN = ((8, 256, 512, 8), (1, 2048, 1024, 16))
WEIGHTS = "forward + weights"
TRAIN_WEIGHTS = "forward + weights + backward"

Shape = tuple[int, int, int, int]


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """The cases against one peer."""
    rivals: dict[str, Sequence[tuple[str, Any, float]]] = {
        "torch": (("bare projections + fused kernel", _bare, 0.95), ("nn.MultiheadAttention", _torch, 1.0)),
        "keras": (("MultiHeadAttention", _keras, 1.0),),
        "x-transformers": (("Attention(flash=True)", _x_transformers, 1.0),),
        "transformers": (("BartAttention, sdpa", _transformers, 1.0),),
    }
    for shape in QUICK if quick else SHAPES:
        for against, rival, goal in rivals[peer]:
            # Training with weights is compared with torch's own module only: it takes long, and no fused kernel has it.
            weighted = {_bare: (), _torch: (WEIGHTS, TRAIN_WEIGHTS)}.get(rival, (WEIGHTS,))
            for measure in (FORWARD, TRAIN, *weighted):
                yield _case(shape, measure, against, rival, goal)

    if peer == "torch":
        for shape in QUICK if quick else MODERN:
            yield from (_modern(shape, measure) for measure in (FORWARD, TRAIN))


def _modern(shape: Shape, measure: str) -> Case:
    batch, length, size, heads = shape

    def inputs() -> tuple[MultiHeadAttention, Tensor]:
        how = Rotary(layout="half")
        attention = MultiHeadAttention(
            size, heads, num_key_heads=heads // 4, causal=True, rotary=how, qk_norm="rms", bias=False
        )
        return attention, leaf(batch, length, size)

    def ours(attention: MultiHeadAttention, x: Tensor) -> Call:
        return call(measure, lambda: attention(x, x).output, (x,), list(attention.parameters()))

    def theirs(attention: Any, x: Tensor) -> Call:
        features = torch.arange(0, attention.head_dim, 2)
        angles = torch.outer(torch.arange(length), 10000.0 ** (-features / attention.head_dim)).repeat(1, 2)
        cos, sin = angles.cos(), angles.sin()

        def turned(heads: Tensor) -> Tensor:
            first, second = heads.chunk(2, dim=-1)
            return heads * cos + torch.cat([-second, first], dim=-1) * sin

        def by_head(layer: nn.Linear, heads: int) -> Tensor:
            projected: Tensor = layer(x)
            return projected.view(batch, length, heads, attention.head_dim).transpose(1, 2)

        def forward() -> Tensor:
            query = turned(attention.query_norm(by_head(attention.query_layer, heads)))
            key = turned(attention.key_norm(by_head(attention.key_layer, heads // 4)))
            value = by_head(attention.value_layer, heads // 4)
            read = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
            output: Tensor = attention.output_layer(read.transpose(1, 2).reshape(batch, length, size))
            return output

        return call(measure, forward, (x,), list(attention.parameters()))

    return Case(
        name=f"modern head {shape}",
        against="the same by hand, fused kernel",
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs=theirs,
        goal=0.97,
    )


def _case(shape: Shape, measure: str, against: str, rival: Any, goal: float) -> Case:
    batch, length, size, heads = shape
    weighted = measure in (WEIGHTS, TRAIN_WEIGHTS)
    called = TRAIN if measure == TRAIN_WEIGHTS else measure

    def inputs() -> tuple[MultiHeadAttention, Tensor]:
        attention = MultiHeadAttention(size, heads, bias=rival is not _x_transformers, keep_weights=weighted)
        return attention, leaf(batch, length, size)

    def ours(attention: MultiHeadAttention, x: Tensor) -> Call:
        def read() -> object:
            output, weights, _ = attention(x, x)
            return (output, weights.dense()) if measure == WEIGHTS else output

        return call(called, read, (x,), list(attention.parameters()))

    def theirs(attention: MultiHeadAttention, x: Tensor) -> Call:
        forward, parameters = rival(attention, x, weighted)
        read = (lambda: forward()[0]) if measure == TRAIN_WEIGHTS else forward
        return call(called, read, (x,), parameters)

    side: Side = theirs
    products = 2 * batch * length * size * (4 * size + 2 * length)
    return Case(
        name=f"self-attention {shape}",
        against=against,
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs=side,
        goal=goal,
        work=("gemm", products) if measure == FORWARD else None,
    )


Rival = tuple[Call, Sequence[Tensor]]


def _bare(attention: MultiHeadAttention, x: Tensor, weights: bool) -> Rival:
    layers = (attention.query_layer, attention.key_layer, attention.value_layer)

    def forward() -> Tensor:
        query, key, value = (layer(x).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2) for layer in layers)
        read = F.scaled_dot_product_attention(query, key, value)
        output: Tensor = attention.output_layer(read.transpose(1, 2).flatten(2))
        return output

    return forward, list(attention.parameters())


def _torch(attention: MultiHeadAttention, x: Tensor, weights: bool) -> Rival:
    peer = nn.MultiheadAttention(attention.model_dim, attention.num_heads, batch_first=True)
    layers = (attention.query_layer, attention.key_layer, attention.value_layer)
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat([layer.weight for layer in layers]))
        peer.in_proj_bias.copy_(torch.cat([layer.bias for layer in layers]))
        peer.out_proj.load_state_dict(attention.output_layer.state_dict())

    def forward() -> object:
        output, read = peer(x, x, x, need_weights=weights, average_attn_weights=False)
        return (output, read) if weights else output

    return forward, list(peer.parameters())


def _keras(attention: MultiHeadAttention, x: Tensor, weights: bool) -> Rival:
    import keras

    heads, size = attention.num_heads, attention.model_dim
    peer = keras.layers.MultiHeadAttention(heads, size // heads)
    peer(x[:1], x[:1])  # builds it
    with torch.no_grad():
        for name in ("query", "key", "value"):
            layer, dense = getattr(attention, f"{name}_layer"), getattr(peer, f"_{name}_dense")
            dense.kernel.assign(layer.weight.T.reshape(size, heads, -1))
            dense.bias.assign(layer.bias.reshape(heads, -1))
        peer._output_dense.kernel.assign(attention.output_layer.weight.T.reshape(heads, -1, size))
        peer._output_dense.bias.assign(attention.output_layer.bias)
    return lambda: peer(x, x, return_attention_scores=weights), list(peer.parameters())


def _x_transformers(attention: MultiHeadAttention, x: Tensor, weights: bool) -> Rival:
    from x_transformers.x_transformers import Attention

    heads, size = attention.num_heads, attention.model_dim
    peer = Attention(size, dim_head=size // heads, heads=heads, flash=not weights)
    copy_projections(attention, peer, ("to_q", "to_k", "to_v", "to_out"))
    if not weights:
        return lambda: peer(x), list(peer.parameters())

    def forward() -> object:
        output, seen = peer(x, return_intermediates=True)
        return output, seen.post_softmax_attn

    return forward, list(peer.parameters())


def _transformers(attention: MultiHeadAttention, x: Tensor, weights: bool) -> Rival:
    from transformers import BartConfig
    from transformers.models.bart.modeling_bart import BartAttention

    config = BartConfig(d_model=attention.model_dim, encoder_attention_heads=attention.num_heads)
    config._attn_implementation = "eager" if weights else "sdpa"  # only eager returns its weights
    peer = BartAttention(attention.model_dim, attention.num_heads, config=config)
    copy_projections(attention, peer, ("q_proj", "k_proj", "v_proj", "out_proj"))

    def forward() -> object:
        output, read = peer(x, output_attentions=weights)
        return (output, read) if weights else output

    return forward, list(peer.parameters())


def copy_projections(attention: MultiHeadAttention, peer: nn.Module, names: Sequence[str]) -> None:
    """Copy our parameters to a peer; the names are its query, key, value and output layers."""
    ours = (attention.query_layer, attention.key_layer, attention.value_layer, attention.output_layer)
    for layer, name in zip(ours, names):
        getattr(peer, name).load_state_dict(layer.state_dict())
