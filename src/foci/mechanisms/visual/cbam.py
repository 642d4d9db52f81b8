"""The convolutional block attention module: weights for the channels of a feature map, then for its locations.

    M_c(F)  = sigmoid(MLP(mean_ij F) + MLP(max_ij F)),   MLP(z) = W_1 relu(W_0 z)
    M_s(F)  = sigmoid(conv2d_7x7([mean_c F_c; max_c F_c]))
    F'      = M_c(F) F
    F''     = M_s(F') F'

Paper: CBAM: Convolutional Block Attention Module (Woo, Park, Lee, Kweon, 2018), eqs. 1-3, arXiv:1807.06521
Names: F = features, M_c = channel, M_s = spatial, F'' = output, W_0 and W_1 = channel.excite
    (reduction in the size of its hidden layer).
Complexity: O(B C (H W + C / reduction) + B H W kernel_size²) time; the two maps take O(B (C + H W)).
Differs: nothing. No layer has a bias, as in the equations; at least one hidden unit is kept. The weights are
    the product of both maps, by which the features are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.checks import check_shape, refuse_script
from foci.mechanisms.visual.gated import gated
from foci.mechanisms.visual.spatial import SpatialAttention
from foci.mechanisms.visual.squeeze_excitation import SqueezeExcitation
from foci.outputs import AttentionOutput, called_as
from foci.tracing import exportable
from foci.weights import Weights
from foci.weights.sources import ByWeights


class ChannelAttention(SqueezeExcitation):
    """Weights for the channels of a feature map from their averages and maxima: the first half of `CBAM`.

    Arguments and results are those of `SqueezeExcitation`.

    Example:
        >>> import torch
        >>> output, weights, _ = ChannelAttention(6, reduction=3)(torch.zeros(1, 6, 2, 2))
        >>> output.shape, weights.shape
        (torch.Size([1, 6, 2, 2]), torch.Size([1, 6, 1, 1]))
    """

    def _logits(self, features: Tensor) -> Tensor:
        logits: Tensor = super()._logits(features) + self.excite(features.amax(dim=(2, 3)))
        return logits


class CBAM(nn.Module):
    """Weights for the channels and then the locations of a feature map.

    Called with ``features (B, C, H, W)`` it returns an output and weights of that shape. The weights are the product of
    the maps of the submodules ``channel`` and ``spatial``, which return an `AttentionOutput` each:
    `foci.record` shows both.

    Args:
        channels: channels of the features.
        reduction: number of channels per hidden unit.
        kernel_size: height and width of the neighborhood that a location's weight depends on, odd.

    Example:
        >>> import torch
        >>> output, weights, _ = CBAM(6, reduction=3)(torch.zeros(1, 6, 2, 3))
        >>> output.shape, weights.shape
        (torch.Size([1, 6, 2, 3]), torch.Size([1, 6, 2, 3]))
    """

    __prepare_scriptable__ = refuse_script

    def __init__(self, channels: int, *, reduction: int = 16, kernel_size: int = 7) -> None:
        super().__init__()
        self.channel = ChannelAttention(channels, reduction=reduction)
        self.spatial = SpatialAttention(kernel_size=kernel_size)

    def forward(self, features: Float[Tensor, "B C H W"]) -> AttentionOutput:
        """Multiply the channels, then the locations, by their weights."""
        check_shape(type(self).__name__, "features", features, "batch", self.channel.channels, "height", "width")
        by_channel = self.channel(features)
        by_place = self.spatial(by_channel.output)
        maps = ProductOfMaps(by_channel.weights.dense(), by_place.weights.dense())
        return gated(features, Weights(maps), by_place.output)

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""


@exportable
@dataclass(eq=False)
class ProductOfMaps(ByWeights):
    """The source of weights ``(B, C, H, W)``: a channel map times a spatial map, multiplied on request."""

    parts = ("channel", "spatial")
    channel: Tensor
    spatial: Tensor

    @property
    def shape(self) -> torch.Size:
        """``(B, C, H, W)``."""
        return torch.Size((*self.channel.shape[:-2], *self.spatial.shape[-2:]))

    def rows(self, index: slice | Tensor) -> Tensor:
        """Return the weights of these rows of locations, ``(B, C, rows, W)``."""
        return self.channel * self.spatial[..., index, :]

    def heads(self, index: int | slice | Tensor) -> ProductOfMaps:
        """Return the source of some channels; for a single one without their axis."""
        spatial = self.spatial[:, 0] if isinstance(index, int) else self.spatial
        return ProductOfMaps(self.channel[:, index], spatial)
