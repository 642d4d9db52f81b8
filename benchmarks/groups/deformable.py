"""Deformable attention

All four projections, four points per head and level, levels of 32², 16² and 8² cells, sizes (batch, queries, model,
heads): queries of a decoder, and of an encoder, where every position asks. The peer is the plain form in torch of
transformers' Deformable DETR, without its kernel for GPUs; gradients are those of queries and positions and of all
parameters. The goal is to be at least as fast.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks.harness import FORWARD, TRAIN, Call, Case, call, leaf
from foci import masks
from foci.mechanisms.heads import DeformableAttention

LEVELS = [(32, 32), (16, 16), (8, 8)]
CELLS = sum(height * width for height, width in LEVELS)
DECODER = ((4, 10, 64, 4), (2, 100, 256, 8), (2, 300, 256, 8))
ENCODER = ((2, CELLS, 64, 4), (1, CELLS, 256, 8))
QUICK = ((4, 10, 64, 4), (1, CELLS, 64, 4))
LAYERS = {
    "offset": "sampling_offsets",
    "weight": "attention_weights",
    "value": "value_proj",
    "output": "output_proj",
}

Shape = tuple[int, int, int, int]


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """The cases against transformers, the only peer."""
    for shape in QUICK if quick else (*DECODER, *ENCODER):
        for measure in (FORWARD, TRAIN):
            yield _case(shape, measure, padded=False)
    if not quick:
        for measure in (FORWARD, TRAIN):
            yield _case(ENCODER[0], measure, padded=True)


def _case(shape: Shape, measure: str, *, padded: bool) -> Case:
    batch, length, size, heads = shape

    def inputs() -> tuple[DeformableAttention, Tensor, Tensor, Tensor, Tensor | None]:
        attention = DeformableAttention(size, heads, num_levels=len(LEVELS))
        for parameter in attention.parameters():
            nn.init.normal_(parameter, std=0.1)
        valid = None
        if padded:  # the first picture fills the upper half only
            valid = torch.ones(batch, CELLS, dtype=torch.bool)
            upper = [(torch.arange(height * width) < height * width // 2) for height, width in LEVELS]
            valid[0] = torch.cat(upper)
        return attention, leaf(batch, length, size), leaf(batch, CELLS, size), torch.rand(batch, length, 2), valid

    def ours(
        attention: DeformableAttention, query: Tensor, cells: Tensor, reference: Tensor, valid: Tensor | None
    ) -> Call:
        mask = None if valid is None else masks.keys(valid)

        def read() -> Tensor:
            return attention(query, cells, mask=mask, reference=reference, levels=LEVELS).output

        return call(measure, read, (query, cells), _used(attention))

    def theirs(
        attention: DeformableAttention, query: Tensor, cells: Tensor, reference: Tensor, valid: Tensor | None
    ) -> Call:
        from transformers import DeformableDetrConfig
        from transformers.models.deformable_detr import modeling_deformable_detr as modeling

        config = DeformableDetrConfig(d_model=size, num_feature_levels=len(LEVELS), disable_custom_kernels=True)
        peer = modeling.DeformableDetrMultiscaleDeformableAttention(config, num_heads=heads, n_points=4)
        for name, other in LAYERS.items():
            getattr(peer, other).load_state_dict(getattr(attention, f"{name}_layer").state_dict())
        places = reference.unsqueeze(2).repeat(1, 1, len(LEVELS), 1)
        if valid is not None:
            places[0, ..., 1] /= 2  # by the authors' valid ratios
        shapes = torch.tensor(LEVELS)

        def read() -> Tensor:
            output: Tensor = peer(
                query,
                attention_mask=valid,
                encoder_hidden_states=cells,
                reference_points=places,
                spatial_shapes=shapes,
                spatial_shapes_list=LEVELS,
            )[0]
            return output

        return call(measure, read, (query, cells), list(peer.parameters()))

    return Case(
        name=f"{'padded ' if padded else ''}{'encoder' if length == CELLS else 'decoder'} {shape}",
        against="multi-scale deformable attention, plain torch",
        measure=measure,
        inputs=inputs,
        ours=ours,
        theirs=theirs,
        goal=1.0,
    )


def _used(attention: DeformableAttention) -> list[Tensor]:
    """Return the parameters but those that predict a reference where none is given."""
    return [parameter for name, parameter in attention.named_parameters() if not name.startswith("reference")]
