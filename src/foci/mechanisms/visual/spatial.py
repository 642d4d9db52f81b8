"""Spatial attention: the weight of a location depends on the mean and the maximum over its channels.

    M(i, j) = sigmoid(conv2d_7x7([mean_c F_c; max_c F_c])(i, j))
    F'_c    = M F_c

Paper: CBAM: Convolutional Block Attention Module (Woo, Park, Lee, Kweon, 2018), eq. 3, arXiv:1807.06521
Names: F = features, M = weights, F' = output, conv2d_7x7 = convolve (of kernel_size 7).
Complexity: O(B H W (C + kernel_size²)) time; the weights take O(B H W).
Differs: nothing. The authors' program also normalizes the batch between convolution and sigmoid; the equation does not,
    and neither does this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.checks import check_shape, refuse_script
from foci.errors import check_odd
from foci.mechanisms.visual.gated import gated
from foci.outputs import AttentionOutput, called_as
from foci.weights import Weights


class SpatialAttention(nn.Module):
    """Weights for the locations of a feature map with any number of channels.

    Called with ``features (B, C, H, W)`` it returns an output of that shape and weights ``(B, 1, H, W)``.

    Args:
        kernel_size: height and width of the neighborhood that a location's weight depends on, odd.

    Example:
        >>> import torch
        >>> output, weights, _ = SpatialAttention()(torch.zeros(1, 6, 2, 3))
        >>> output.shape, weights.shape
        (torch.Size([1, 6, 2, 3]), torch.Size([1, 1, 2, 3]))
    """

    __prepare_scriptable__ = refuse_script

    def __init__(self, *, kernel_size: int = 7) -> None:
        super().__init__()
        check_odd(type(self).__name__, kernel_size=kernel_size)
        self.convolve = nn.Conv2d(2, 1, kernel_size, padding=kernel_size // 2, bias=False)

    def forward(self, features: Float[Tensor, "B C H W"]) -> AttentionOutput:
        """Multiply the locations by their weights."""
        check_shape(type(self).__name__, "features", features, "batch", "channel", "height", "width")
        pooled = torch.cat([features.mean(dim=1, keepdim=True), features.amax(dim=1, keepdim=True)], dim=1)
        weights = torch.sigmoid(self.convolve(pooled))
        return gated(features, Weights.from_tensor(weights))

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""
