"""A map of an image on several levels: the features of a network, joined from the coarsest level to the finest.

    p^L  = encoder(W_L c^L + place code)                       c^l: the network's features, L the coarsest level
    p^l  = smooth(W_l c^l + up(p^{l+1}))

Paper: Feature Pyramid Networks for Object Detection (Lin et al., 2017), section 3, arXiv:1612.03144; encoder:
    End-to-End Object Detection with Transformers (Carion et al., 2020), section 3.2, arXiv:2005.12872
Names: c = backbone, W_l = laterals, smooth = smoothings, encoder = layers, up = each cell four times
Complexity: O(S² · D) per layer over the S places of the coarsest level
Differs: the coarsest level is encoded before it is joined with the others. What lies beyond the readable part of an
    image is 0 in convolutions and masked in attention, so that an image has the same map alone and padded.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci.checks import check_ids
from foci.errors import ShapeError
from foci.functional.positions import place_code
from foci.layers.block_options import BlockOptions
from foci.layers.interfaces import source_mask
from foci.layers.transformer import EncoderLayer
from foci.models.encoders.image_backbones import build_backbone, cleared, readable_cells
from foci.models.encoders.image_grid import Image
from foci.models.options.detection import MapOptions
from foci.tracing import is_traced
from foci.weights import Weights

FASTEST = 4.0
"""Periods over the picture of the fastest part of the codes that queries are compared with: near places are alike."""


class ImageMap(NamedTuple):
    """The places of all levels as one sequence, the finest level first, row by row.

    Attributes:
        values: features of each place.
        codes: the place code of each, of `FASTEST`: where in the picture it lies.
        mask: which places can be read; None where all can.
        grids: height and width of each level.
        attentions: the weights of the layers over the coarsest level, such as ``encoder.0.self``.
    """

    values: Float[Tensor, "B S D"]
    codes: Float[Tensor, "B S D"]
    mask: Bool[Tensor, "B 1 S"] | None
    grids: tuple[tuple[int, int], ...]
    attentions: dict[str, Weights]


class ImageLevels(nn.Module):
    """Turns images into a map of several levels.

    Call it with ``images (B, 3, H, W)``, bytes from 0 to 255 or floating numbers around 0, and ``sizes (B, 2)``: height
    and width of the readable part of each, which is at the upper left.

    Args:
        block: sizes of the layers over the coarsest level.
        num_layers: their number, from 0.
        options: the network.

    Example:
        >>> import torch
        >>> from foci.models.options.detection import SmallMapOptions
        >>> levels = ImageLevels(BlockOptions(model_dim=8, num_heads=2, hidden_dim=16), 1, SmallMapOptions())
        >>> read = levels(torch.zeros(1, 3, 16, 24, dtype=torch.uint8))
        >>> read.values.shape, read.grids
        (torch.Size([1, 30, 8]), ((4, 6), (2, 3)))
    """

    def __init__(self, block: BlockOptions, num_layers: int, options: MapOptions) -> None:
        super().__init__()
        self.model_dim = block.model_dim
        self.backbone = build_backbone(options)
        channels = self.backbone.channels
        self.laterals = nn.ModuleList(nn.Conv2d(one, block.model_dim, 1) for one in channels)
        self.smoothings = nn.ModuleList(
            nn.Conv2d(block.model_dim, block.model_dim, 3, padding=1) for _ in channels[:-1]
        )
        self.layers = nn.ModuleList(EncoderLayer(block) for _ in range(num_layers))

    def grids(self, height: int, width: int) -> tuple[tuple[int, int], ...]:
        """Return height and width of each level of the map of a picture of this size, the finest first."""
        return tuple((-(-height // stride), -(-width // stride)) for stride in self.backbone.strides)

    def forward(self, images: Image, sizes: Int[Tensor, "B 2"] | None = None) -> ImageMap:
        """Return the map of each image; by default all of an image is readable."""
        sizes = self._checked_sizes(images, sizes)
        found = self.backbone(images, sizes)
        canvas = torch.tensor([list(images.shape[-2:])], device=images.device) if sizes is None else sizes
        values: list[Tensor] = []
        codes: list[Tensor] = []
        attentions: dict[str, Weights] = {}
        above: Tensor | None = None
        for level in reversed(range(len(found))):
            stride = self.backbone.strides[level]
            features = self.laterals[level](found[level])
            places = _middles(features, stride, canvas)
            if above is None:
                readable = readable_cells(sizes, features.shape[-2:], stride)
                features, attentions = self._encode(features, place_code(places, self.model_dim), readable)
            else:
                features = self.smoothings[level](cleared(features + _twice(above, features), sizes, stride))
            above = features
            values.append(features.flatten(2).mT)
            codes.append(place_code(places, self.model_dim, fastest=FASTEST).to(features.dtype))
        grids = self.grids(*images.shape[-2:])
        masks = [readable_cells(sizes, grid, stride) for grid, stride in zip(grids, self.backbone.strides)]
        return ImageMap(
            torch.cat(values[::-1], dim=1),
            torch.cat(codes[::-1], dim=1).expand(images.shape[0], -1, -1),
            None if sizes is None else torch.cat([mask.flatten(1) for mask in masks if mask is not None], 1)[:, None],
            grids,
            attentions,
        )

    def _encode(self, features: Tensor, codes: Tensor, readable: Tensor | None) -> tuple[Tensor, dict[str, Weights]]:
        """Return the coarsest level after its layers of self-attention, and their weights."""
        attentions = {}
        mask = None if readable is None else source_mask(readable.flatten(1))
        places = features.flatten(2).mT + (codes.to(features.dtype) if self.layers else 0.0)
        for number, layer in enumerate(self.layers):
            places, attentions[f"encoder.{number}.self"] = layer(places, mask)
        return places.mT.unflatten(2, features.shape[-2:]), attentions

    def _checked_sizes(self, images: Tensor, sizes: Tensor | None) -> Tensor | None:
        """Return the sizes; None where every image fills the canvas, which is faster."""
        owner = "ImageLevels"
        if images.dim() != 4 or images.shape[1] != 3 or 0 in images.shape[2:]:
            raise ShapeError(f"{owner}: images has shape {tuple(images.shape)}, expected (batch, 3, height, width).")
        if sizes is None:
            return None
        check_ids(owner, "sizes", sizes, images.shape[0], 2)
        if is_traced():
            return sizes
        canvas = torch.tensor(images.shape[-2:], device=sizes.device)
        if bool(((sizes < 1) | (sizes > canvas)).any()):
            raise ShapeError(
                f"{owner}: sizes has {sizes.tolist()}, expected heights from 1 to {images.shape[2]} and widths from 1 "
                f"to {images.shape[3]}: the readable part of each image."
            )
        return None if bool((sizes == canvas).all()) else sizes


def _middles(like: Tensor, stride: int, sizes: Int[Tensor, "#B 2"]) -> Float[Tensor, "#B S 2"]:
    """Return x and y of the middle of each cell, as shares of the readable picture."""
    height, width = like.shape[-2:]
    down, across = ((torch.arange(count, device=like.device) + 0.5) * stride for count in (height, width))
    y, x = down / sizes[:, :1], across / sizes[:, 1:]
    places = torch.stack([x.unsqueeze(1).expand(-1, height, -1), y.unsqueeze(2).expand(-1, -1, width)], dim=-1)
    return places.flatten(1, 2)


def _twice(above: Tensor, like: Tensor) -> Tensor:
    """Return each cell of a level four times, for the level below it."""
    height, width = like.shape[-2:]
    return above.repeat_interleave(2, dim=-2).repeat_interleave(2, dim=-1)[..., :height, :width]
