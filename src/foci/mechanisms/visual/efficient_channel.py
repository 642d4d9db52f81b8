"""Efficient channel attention: the weight of a channel depends on the averages of the adjacent channels.

    z_c = mean_ij u_c(i, j)
    s   = sigmoid(conv1d_k(z))
    x_c = s_c u_c
    k   = the odd number nearest to log_2(C) / γ + b / γ,  γ = 2, b = 1

Paper: ECA-Net: Efficient Channel Attention for Deep Convolutional Neural Networks (Wang et al., 2020), section 3,
    arXiv:1910.03151
Names: u = features, s = weights, x = output, k = kernel_size, C = channels.
Complexity: O(B C (H W + kernel_size)) time; the weights take O(B C).
Differs: nothing. Where k lies half way between two odd numbers the larger is taken; beyond the first and last channel
    the convolution is padded with zeros.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.checks import check_shape, refuse_script
from foci.errors import check_odd, check_sizes
from foci.mechanisms.visual.gated import gated
from foci.outputs import AttentionOutput, called_as
from foci.weights import Weights


class EfficientChannel(nn.Module):
    """Weights for the channels of a feature map by a convolution over their averages: ``kernel_size`` parameters.

    Called with ``features (B, C, H, W)`` it returns an output of that shape and weights ``(B, C, 1, 1)``.

    Args:
        channels: channels of the features.
        kernel_size: width of the convolution over channels, odd. Default: by the paper's rule.

    Example:
        >>> import torch
        >>> attention = EfficientChannel(256)
        >>> attention.kernel_size
        5
        >>> output, weights, _ = attention(torch.zeros(1, 256, 2, 2))
        >>> output.shape, weights.shape
        (torch.Size([1, 256, 2, 2]), torch.Size([1, 256, 1, 1]))
    """

    __prepare_scriptable__ = refuse_script

    def __init__(self, channels: int, *, kernel_size: int | None = None) -> None:
        super().__init__()
        check_sizes(type(self).__name__, channels=channels)
        self.channels = channels
        self.kernel_size = _adapted(channels) if kernel_size is None else kernel_size
        check_odd(type(self).__name__, kernel_size=self.kernel_size)
        self.convolve = nn.Conv1d(1, 1, self.kernel_size, padding=self.kernel_size // 2, bias=False)

    def forward(self, features: Float[Tensor, "B C H W"]) -> AttentionOutput:
        """Multiply the channels by their weights."""
        check_shape(type(self).__name__, "features", features, "batch", self.channels, "height", "width")
        logits = self.convolve(features.mean(dim=(2, 3)).unsqueeze(1)).squeeze(1)
        weights = torch.sigmoid(logits)[:, :, None, None]
        return gated(features, Weights.from_tensor(weights))

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""


def _adapted(channels: int) -> int:
    width = (math.log2(channels) + 1) / 2
    return 2 * int(width / 2) + 1
