"""A small residual network over images: a grid of regions, with attention to channels or places in its blocks.

    x⁰   = relu(norm(W ∗ image))
    r^l  = norm(W_2 ∗ relu(norm(W_1 ∗ x^{l−1})))
    x^l  = relu(s^l(x^{l−1}) + a^l(r^l))

Each stage halves the grid and doubles the channels; a^l is squeeze-and-excitation, efficient channel attention, CBAM,
spatial attention or nothing, and s^l a projection where sizes change, else the identity.

Paper: Deep Residual Learning for Image Recognition (He et al., 2016), eqs. 1-2 and section 3.3, arXiv:1512.03385; the
    place of the attention in a block: Squeeze-and-Excitation Networks (Hu, Shen, Sun, 2018), fig. 3; CBAM (Woo et al.,
    2018), fig. 3
Names: W = stem, W_1 and W_2 = first and second, a = attention, s = shortcut, x^L = encoded.values
Complexity: O(H · W · C²) per block
Differs: groups of channels of one image are normalized (Wu, He, 2018) instead of batches, so that neither an image's
    encoding nor its gradient depends on the others in its batch, and a batch may have any size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn
from torch.nn.functional import interpolate

from foci.checks import check_valid
from foci.errors import ShapeError
from foci.functional.windows import at_least_float32
from foci.layers.interfaces import EncoderOutput
from foci.mechanisms.visual import CBAM, EfficientChannel, SpatialAttention, SqueezeExcitation
from foci.mechanisms.visual.cbam import ProductOfMaps
from foci.models.options.images import ImageGridOptions
from foci.outputs import AttentionOutput
from foci.weights import Weights

_GROUPS = 8
"""Largest number of groups of channels that are normalized together."""

Image = UInt8[Tensor, "B 3 H W"] | Float[Tensor, "B 3 H W"]


class ImageGridEncoder(nn.Module):
    """Turns images into a grid of regions.

    Call it with ``images (B, 3, H, W)``: bytes from 0 to 255, or floating numbers around 0. ``values`` of the
    `EncoderOutput` are the regions, row by row, ``summary`` their mean, and ``attentions`` the maps of each block as
    they were applied: ``0.channel (B, C, 1, 1)`` and ``0.spatial (B, 1, h, w)``, from 0 to 1.

    Args:
        options: sizes and options.

    Example:
        >>> import torch
        >>> encoder = ImageGridEncoder(ImageGridOptions(hidden_dim=12, num_stages=2, block_attention="cbam"))
        >>> encoded = encoder(torch.zeros(1, 3, 10, 6, dtype=torch.uint8))
        >>> encoded.values.shape, encoder.grid(10, 6), sorted(encoded.attentions)
        (torch.Size([1, 15, 12]), (5, 3), ['0.channel', '0.spatial', '1.channel', '1.spatial'])
    """

    def __init__(self, options: ImageGridOptions) -> None:
        super().__init__()
        self.output_dim = options.hidden_dim
        self.stride, self.num_stages = options.stride, options.num_stages
        widths = [max(1, options.hidden_dim // 2**place) for place in range(options.num_stages - 1, -1, -1)]
        self.stem = nn.Conv2d(3, widths[0], 3, stride=options.stride, padding=1, bias=False)
        self.norm = ImageNorm(widths[0])
        before = [widths[0], *widths]
        self.blocks = nn.ModuleList(
            ResidualBlock(
                input_dim if number == 0 else output_dim,
                output_dim,
                stride=2 if stage > 0 and number == 0 else 1,
                attention=_block_attention(output_dim, options),
            )
            for stage, (input_dim, output_dim) in enumerate(pairwise(before))
            for number in range(options.depth)
        )

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return how many regions down and across an image of this size has."""
        down, across = (-(-side // self.stride) for side in (height, width))
        for _ in range(self.num_stages - 1):
            down, across = -(-down // 2), -(-across // 2)
        return down, across

    def forward(self, images: Image, valid: Bool[Tensor, "B S"] | None = None) -> EncoderOutput:
        """Encode a batch of images; ``valid`` says which regions exist, by default all of them."""
        owner = type(self).__name__
        if images.dim() != 4 or images.shape[1] != 3 or 0 in images.shape[2:]:
            raise ShapeError(f"{owner}: images has shape {tuple(images.shape)}, expected (batch, 3, height, width).")
        pixels = images.to(self.stem.weight.dtype)
        if not images.is_floating_point():
            pixels = pixels / 127.5 - 1
        features = torch.relu(self.norm(self.stem(pixels)))
        attentions: dict[str, Weights] = {}
        for number, block in enumerate(self.blocks):
            features, weights = block(features)
            attentions |= {f"{number}.{kind}": handle for kind, handle in _maps(weights).items()}
        values = features.flatten(2).mT
        if valid is None:
            valid = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
        check_valid(owner, "valid", valid, values.shape[0], values.shape[1], values.device)
        encoded = EncoderOutput(values, valid, attentions=attentions)
        return encoded._replace(summary=(encoded.mean().unsqueeze(1),))


class ResidualBlock(nn.Module):
    """Two convolutions with a residual connection around them, and attention before the sum.

    Args:
        input_dim: channels of the features.
        output_dim: channels of the output.
        stride: of the first convolution.
        attention: a mechanism of the family "map"; None for a plain block.
    """

    def __init__(self, input_dim: int, output_dim: int, *, stride: int = 1, attention: nn.Module | None = None) -> None:
        super().__init__()
        self.first = nn.Conv2d(input_dim, output_dim, 3, stride=stride, padding=1, bias=False)
        self.first_norm = ImageNorm(output_dim)
        self.second = nn.Conv2d(output_dim, output_dim, 3, padding=1, bias=False)
        self.second_norm = ImageNorm(output_dim)
        self.attention = attention
        same = input_dim == output_dim and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(input_dim, output_dim, 1, stride=stride, bias=False)

    def forward(
        self, features: Float[Tensor, "B C H W"], readable: Bool[Tensor, "B I J"] | None = None
    ) -> tuple[Float[Tensor, "B D I J"], Weights | None]:
        """Return the features of the next block, and the weights of the attention.

        Features beyond the readable places of the output, by default none, must be 0 and stay so, which the attention
        does not know.
        """
        hidden = torch.relu(self.first_norm(self.first(features), readable))
        residual = self.second_norm(self.second(hidden), readable)
        weights = None
        if self.attention is not None:
            attended: AttentionOutput = self.attention(residual)
            residual, weights = attended.output, attended.weights
        return torch.relu(self.shortcut(features) + residual), weights


def places(grid: tuple[int, int], like: Float[Tensor, "B S D"]) -> Float[Tensor, "B S 2"]:
    """Return the middle of each region, from −1 to 1 down and across, in the dtype of ``like``.

    Example:
        >>> import torch
        >>> places((2, 1), torch.zeros(1, 2, 5)).tolist()
        [[[-0.5, 0.0], [0.5, 0.0]]]
    """
    down, across = (
        (torch.arange(count, device=like.device, dtype=like.dtype) + 0.5) * (2 / count) - 1 for count in grid
    )
    middles = torch.stack(torch.meshgrid(down, across, indexing="ij"), dim=-1).flatten(0, 1)
    return middles.expand(like.shape[0], -1, -1)


class ImageNorm(nn.GroupNorm):
    """Normalizes groups of channels over the readable places of each image, and sets the others to 0.

    Args:
        channels: number of channels.

    Example:
        >>> features, readable = torch.tensor([[[[1.0, 3.0, 9.0]]]]), torch.tensor([[[True, True, False]]])
        >>> ImageNorm(1)(features, readable).detach().round()
        tensor([[[[-1.,  1.,  0.]]]])
    """

    def __init__(self, channels: int) -> None:
        super().__init__(math.gcd(channels, _GROUPS), channels)

    def forward(
        self, features: Float[Tensor, "B C H W"], readable: Bool[Tensor, "B H W"] | None = None
    ) -> Float[Tensor, "B C H W"]:
        """Normalize; by default all places are readable."""
        if readable is None:
            return super().forward(features)
        closed = ~readable.unsqueeze(1)
        grouped = at_least_float32(features).unflatten(1, (self.num_groups, -1))
        beyond = closed.unsqueeze(1)
        count = readable.sum(dim=(1, 2)).clamp_min(1).view(-1, 1, 1, 1, 1) * grouped.shape[2]
        mean = grouped.masked_fill(beyond, 0.0).sum(dim=(2, 3, 4), keepdim=True) / count
        centered = (grouped - mean).masked_fill(beyond, 0.0)
        variance = centered.square().sum(dim=(2, 3, 4), keepdim=True) / count
        unit = (centered * torch.rsqrt(variance + self.eps)).flatten(1, 2)
        scaled = unit * self.weight.view(-1, 1, 1) + self.bias.view(-1, 1, 1)
        normalized: Tensor = scaled.masked_fill(closed, 0.0).to(features.dtype)
        return normalized


def _block_attention(channels: int, options: ImageGridOptions) -> nn.Module | None:
    match options.block_attention:
        case "none":
            return None
        case "efficient_channel":
            return EfficientChannel(channels)
        case "squeeze_excitation":
            return SqueezeExcitation(channels, reduction=options.reduction)
        case "spatial":
            return SpatialAttention(kernel_size=options.kernel_size)
        case "cbam":
            return CBAM(channels, reduction=options.reduction, kernel_size=options.kernel_size)


def _maps(weights: Weights | None) -> dict[str, Weights]:
    """The map of channels and that of places which a mechanism has multiplied by."""
    if weights is None:
        return {}
    if isinstance(weights.source, ProductOfMaps):
        return {
            "channel": Weights.from_tensor(weights.source.channel),
            "spatial": Weights.from_tensor(weights.source.spatial),
        }
    return {"channel" if weights.shape[1] > 1 or weights.shape[2:] == (1, 1) else "spatial": weights}


def as_shares(maps: Sequence[Weights], grid: tuple[int, int]) -> Float[Tensor, "B L S"]:
    """Return maps ``(B, 1, h, w)`` on one grid, each as shares that sum to 1 of what exceeds its smallest weight.

    Maps of sigmoids never come near 0: what tells places apart is the difference to the smallest weight. Between the
    middles of regions a map is linear; a map of equal weights has shares of 0.

    Example:
        >>> import torch
        >>> from foci.weights.handle import Weights
        >>> as_shares([Weights.from_tensor(torch.tensor([[[[0.75, 0.25], [0.5, 0.25]]]]))], (2, 2))[0, 0].tolist()
        [0.6666666865348816, 0.0, 0.3333333432674408, 0.0]
    """
    spread = [interpolate(handle.dense(), grid, mode="bilinear", align_corners=False).flatten(1) for handle in maps]
    stacked = torch.stack(spread, dim=1)
    above = stacked - stacked.amin(dim=-1, keepdim=True)
    total = above.sum(dim=-1, keepdim=True)
    return above / torch.where(total > 0, total, 1.0)
