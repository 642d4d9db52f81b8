"""A map of an image on several levels: a small residual network, then from the coarsest level back to the finest.

    c^l  = stage_l(c^{l−1})                                   each stage halves height and width
    p^L  = W_L c^L,   p^L = encoder(p^L + place code)
    p^l  = smooth(W_l c^l + up(p^{l+1}))

Paper: Deep Residual Learning for Image Recognition (He et al., 2016), section 3.3, arXiv:1512.03385; Feature Pyramid
    Networks for Object Detection (Lin et al., 2017), section 3, arXiv:1612.03144; the layers over the coarsest level:
    End-to-End Object Detection with Transformers (Carion et al., 2020), section 3.2, arXiv:2005.12872
Names: W_l = laterals, smooth = smoothings, encoder = layers, up = each cell four times
Complexity: O(H · W · C²) per block, and O(S² · D) per layer over the S places of the coarsest level
Differs: groups of channels of one image are normalized instead of batches. What lies beyond the readable part of
    an image is 0 in every layer and counts in no norm, so that an image has the same map alone and padded.
"""

from __future__ import annotations

from itertools import pairwise
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
from foci.models.encoders.image_grid import Image, ImageNorm, ResidualBlock
from foci.models.options.detection import SmallMapOptions
from foci.tracing import is_traced
from foci.weights import Weights


class ImageMap(NamedTuple):
    """The places of all levels as one sequence, the finest level first, row by row.

    Attributes:
        values: features of each place.
        codes: the place code of each: where in the picture it lies.
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
        >>> levels = ImageLevels(BlockOptions(model_dim=8, num_heads=2, hidden_dim=16), 1, SmallMapOptions())
        >>> read = levels(torch.zeros(1, 3, 16, 24, dtype=torch.uint8))
        >>> read.values.shape, read.grids
        (torch.Size([1, 30, 8]), ((4, 6), (2, 3)))
    """

    def __init__(self, block: BlockOptions, num_layers: int, options: SmallMapOptions) -> None:
        super().__init__()
        self.model_dim = block.model_dim
        self.num_levels = options.num_levels
        first, *_ = options.stages
        self.stem = nn.Conv2d(3, first, 3, stride=2, padding=1, bias=False)
        self.norm = ImageNorm(first)
        self.stages = nn.ModuleList(
            ResidualBlock(before, channels, stride=2) for before, channels in pairwise(options.stages)
        )
        finest_first = options.stages[-options.num_levels :]
        self.laterals = nn.ModuleList(nn.Conv2d(channels, block.model_dim, 1) for channels in finest_first)
        self.smoothings = nn.ModuleList(
            nn.Conv2d(block.model_dim, block.model_dim, 3, padding=1) for _ in finest_first[:-1]
        )
        self.layers = nn.ModuleList(EncoderLayer(block) for _ in range(num_layers))

    def grids(self, height: int, width: int) -> tuple[tuple[int, int], ...]:
        """Return height and width of each level of the map of a picture of this size, the finest first."""
        strides = [2 ** (len(self.stages) + 1 - level) for level in range(self.num_levels)]
        return tuple((-(-height // stride), -(-width // stride)) for stride in reversed(strides))

    def forward(self, images: Image, sizes: Int[Tensor, "B 2"] | None = None) -> ImageMap:
        """Return the map of each image; by default all of an image is readable."""
        sizes = self._checked_sizes(images, sizes)
        pixels = images.to(self.stem.weight.dtype)
        if not images.is_floating_point():
            pixels = pixels / 127.5 - 1
        readable = _readable(sizes, images.shape[-2:], 1)
        if readable is not None:
            pixels = pixels.masked_fill(~readable.unsqueeze(1), 0.0)
        features = self.stem(pixels)
        features = torch.relu(self.norm(features, _readable(sizes, features.shape[-2:], 2)))
        found = [features]
        for number, stage in enumerate(self.stages):
            features, _ = stage(features, _readable(sizes, _halved(features), 4 * 2**number))
            found.append(features)
        return self._joined(found[-self.num_levels :], images.shape[-2:], sizes)

    def _joined(self, found: list[Tensor], canvas: torch.Size, sizes: Tensor | None) -> ImageMap:
        """Return the map from the features of its levels, the finest first."""
        coarsest = 2 ** (len(self.stages) + 1)
        levels: list[tuple[Tensor, Tensor, Tensor | None]] = []
        attentions: dict[str, Weights] = {}
        above: Tensor | None = None
        for level in reversed(range(len(found))):
            stride = coarsest // 2 ** (len(found) - 1 - level)
            height, width = found[level].shape[-2:]
            readable = _readable(sizes, (height, width), stride)
            features = self.laterals[level](found[level])
            codes = self._codes((height, width), stride, canvas, sizes, features)
            if above is None:
                features, attentions = self._encode(features, codes, readable)
            else:
                up = above.repeat_interleave(2, dim=-2).repeat_interleave(2, dim=-1)[..., :height, :width]
                features = features + up
                if readable is not None:
                    features = features.masked_fill(~readable.unsqueeze(1), 0.0)
                features = self.smoothings[level](features)
            if readable is not None:
                features = features.masked_fill(~readable.unsqueeze(1), 0.0)
            above = features
            levels.insert(0, (features.flatten(2).mT, codes, readable))
        masks = [readable.flatten(1) for _, _, readable in levels if readable is not None]
        return ImageMap(
            torch.cat([values for values, _, _ in levels], dim=1),
            torch.cat([codes for _, codes, _ in levels], dim=1),
            torch.cat(masks, dim=1).unsqueeze(1) if masks else None,
            tuple((one.shape[-2], one.shape[-1]) for one in found),
            attentions,
        )

    def _encode(self, features: Tensor, codes: Tensor, readable: Tensor | None) -> tuple[Tensor, dict[str, Weights]]:
        """Return the coarsest level after its layers of self-attention, and their weights."""
        attentions = {}
        mask = None if readable is None else source_mask(readable.flatten(1))
        places = features.flatten(2).mT + (codes if self.layers else 0.0)
        for number, layer in enumerate(self.layers):
            places, attentions[f"encoder.{number}.self"] = layer(places, mask)
        return places.mT.unflatten(2, features.shape[-2:]), attentions

    def _codes(
        self, grid: tuple[int, int], stride: int, canvas: torch.Size, sizes: Tensor | None, like: Tensor
    ) -> Float[Tensor, "B S D"]:
        """Return the code of the middle of each cell, as shares of the readable picture."""
        if sizes is None:
            sizes = torch.tensor([list(canvas)], device=like.device).expand(like.shape[0], -1)
        down, across = ((torch.arange(count, device=like.device) + 0.5) * stride for count in grid)
        y, x = down / sizes[:, :1], across / sizes[:, 1:]
        places = torch.stack([x.unsqueeze(1).expand(-1, grid[0], -1), y.unsqueeze(2).expand(-1, -1, grid[1])], dim=-1)
        return place_code(places.flatten(1, 2), self.model_dim).to(like.dtype)

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


def _halved(features: Tensor) -> tuple[int, int]:
    return -(-features.shape[-2] // 2), -(-features.shape[-1] // 2)


def _readable(sizes: Tensor | None, grid: tuple[int, int] | torch.Size, stride: int) -> Bool[Tensor, "B H W"] | None:
    """Return which cells of a level hold something of the readable part."""
    if sizes is None:
        return None
    rows, columns = (
        torch.arange(count, device=sizes.device) * stride < side.unsqueeze(1)
        for count, side in zip(grid, sizes.unbind(dim=1))
    )
    return rows.unsqueeze(2) & columns.unsqueeze(1)
