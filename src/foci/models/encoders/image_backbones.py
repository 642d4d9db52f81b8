"""Networks that turn an image into features at several strides: a small one from scratch, and EfficientNet-lite0.

Both are called with images and the sizes of their readable parts, None where all of them can be read, and return the
features of each level, the finest first, of ⌈height / stride⌉ × ⌈width / stride⌉ cells. They set what lies beyond the
readable part to 0 in every layer, so that an image has the same features alone and padded.

Paper: Deep Residual Learning for Image Recognition (He et al., 2016), section 3.3, arXiv:1512.03385; EfficientNet:
    Rethinking Model Scaling for Convolutional Neural Networks (Tan, Le, 2019), arXiv:1905.11946
Names: as in `foci.models.encoders.image_grid` and `foci.models.encoders.frozen`
Complexity: O(H · W · C²) per block
Differs: groups of channels of one image are normalized instead of batches in the small network; the batch
    normalization of EfficientNet is folded into its convolutions, also where it is tuned.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from foci.models.encoders.frozen import EfficientNetLite0
from foci.models.encoders.image_grid import Image, ImageNorm, ResidualBlock
from foci.models.options.detection import EfficientNetMapOptions, SmallMapOptions

_EFFICIENT_LEVELS = {8: 4, 16: 10, 32: 15}
"""Stride -> the last of EfficientNet-lite0's blocks that has it."""


class SmallBackbone(nn.Module):
    """A small residual network, each of whose stages halves height and width.

    Args:
        options: channels of the stages, and how many of them are levels.
    """

    def __init__(self, options: SmallMapOptions) -> None:
        super().__init__()
        count = len(options.stages)
        self.channels = options.stages[-options.num_levels :]
        self.strides = tuple(2 ** (stage + 1) for stage in range(count - options.num_levels, count))
        first, *_ = options.stages
        self.stem = nn.Conv2d(3, first, 3, stride=2, padding=1, bias=False)
        self.norm = ImageNorm(first)
        self.stages = nn.ModuleList(
            ResidualBlock(before, channels, stride=2) for before, channels in pairwise(options.stages)
        )

    def forward(self, images: Image, sizes: Int[Tensor, "B 2"] | None) -> list[Float[Tensor, "B C h w"]]:
        """Return the features of each level."""
        pixels = images.to(self.stem.weight.dtype)
        if not images.is_floating_point():
            pixels = pixels / 127.5 - 1
        features = self.stem(cleared(pixels, sizes, 1))
        features = torch.relu(self.norm(features, readable_cells(sizes, features.shape[-2:], 2)))
        found = [features]
        for number, stage in enumerate(self.stages):
            height, width = (-(-side // 2) for side in features.shape[-2:])
            features, _ = stage(features, readable_cells(sizes, (height, width), 4 * 2**number))
            found.append(features)
        return found[-len(self.channels) :]


class EfficientNetBackbone(nn.Module):
    """EfficientNet-lite0 with ImageNet's weights, frozen or tuned; see `EfficientNetLite0`.

    Args:
        options: whether it is tuned, and its levels.
    """

    def __init__(self, options: EfficientNetMapOptions) -> None:
        super().__init__()
        self.tuned = options.tuned
        network = EfficientNetLite0().network
        self.strides = tuple(sorted(_EFFICIENT_LEVELS)[-options.num_levels :])
        self.stem, self.blocks = network._conv_stem, network._blocks
        self.channels = tuple(
            self.blocks[_EFFICIENT_LEVELS[stride]]._project_conv.out_channels for stride in self.strides
        )
        self.requires_grad_(options.tuned)

    def forward(self, images: Image, sizes: Int[Tensor, "B 2"] | None) -> list[Float[Tensor, "B C h w"]]:
        """Return the features of each level."""
        height, width = images.shape[-2:]
        coarsest = max(_EFFICIENT_LEVELS)
        beyond = (-width % coarsest, -height % coarsest)  # the network pads for even sizes
        if sizes is None and any(beyond):
            sizes = torch.tensor([[height, width]], device=images.device).expand(images.shape[0], -1)
        pixels = images.to(self.stem.weight.dtype)
        if not images.is_floating_point():
            pixels = (pixels - 127) / 128
        pixels = F.pad(cleared(pixels, sizes, 1), (0, beyond[0], 0, beyond[1]))
        with nullcontext() if self.tuned else torch.no_grad():
            found = self._levels(pixels, sizes)
        return [
            features[..., : -(-height // stride), : -(-width // stride)]
            for stride, features in zip(self.strides, found)
        ]

    def _levels(self, pixels: Tensor, sizes: Tensor | None) -> list[Tensor]:
        found, stride = [], 2
        features = cleared(F.relu6(self.stem(pixels)), sizes, stride)
        last = {_EFFICIENT_LEVELS[level] for level in self.strides}
        for number, block in enumerate(self.blocks):
            expanded = features
            if hasattr(block, "_expand_conv"):
                expanded = cleared(F.relu6(block._expand_conv(features)), sizes, stride)
            stride *= block._depthwise_conv.stride[0]
            projected = block._project_conv(F.relu6(block._depthwise_conv(expanded)))
            adds = projected.shape == features.shape and block.id_skip
            features = cleared(projected + features if adds else projected, sizes, stride)
            if number in last:
                found.append(features)
        return found


def build_backbone(options: SmallMapOptions | EfficientNetMapOptions) -> SmallBackbone | EfficientNetBackbone:
    """Return a new network."""
    match options:
        case SmallMapOptions():
            return SmallBackbone(options)
        case EfficientNetMapOptions():
            return EfficientNetBackbone(options)


def readable_cells(
    sizes: Int[Tensor, "B 2"] | None, grid: tuple[int, int] | torch.Size, stride: int
) -> Bool[Tensor, "B H W"] | None:
    """Return which cells of a level hold something of the readable part; None where all do.

    Example:
        >>> readable_cells(torch.tensor([[2, 5]]), (2, 3), 2).int().tolist()
        [[[1, 1, 1], [0, 0, 0]]]
    """
    if sizes is None:
        return None
    rows, columns = (
        torch.arange(count, device=sizes.device) * stride < side.unsqueeze(1)
        for count, side in zip(grid, sizes.unbind(dim=1))
    )
    return rows.unsqueeze(2) & columns.unsqueeze(1)


def cleared(features: Float[Tensor, "B C H W"], sizes: Int[Tensor, "B 2"] | None, stride: int) -> Tensor:
    """Return the features with 0 in the cells that hold nothing of the readable part."""
    readable = readable_cells(sizes, features.shape[-2:], stride)
    return features if readable is None else features.masked_fill(~readable.unsqueeze(1), 0.0)
