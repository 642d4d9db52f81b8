"""Squeeze-and-excitation: the weights of the channels depend on the averages of all channels.

    z_c = mean_ij u_c(i, j)
    s   = sigmoid(W_2 relu(W_1 z))
    x_c = s_c u_c

Paper: Squeeze-and-Excitation Networks (Hu, Shen, Sun, 2018), eqs. 2-4, arXiv:1709.01507
Names: u = features, s = weights, x = output, W_1 and W_2 = excite (reduction in the size of its hidden layer).
Complexity: O(B C (H W + C / reduction)) time; the weights take O(B C).
Differs: nothing. The two layers have no bias, as in the equation; at least one hidden unit is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.checks import check_shape, refuse_script
from foci.errors import check_sizes
from foci.mechanisms.visual.gated import gated
from foci.outputs import AttentionOutput, called_as
from foci.weights import Weights


class SqueezeExcitation(nn.Module):
    """Weights for the channels of a feature map from their averages.

    Called with ``features (B, C, H, W)`` it returns an output of that shape and weights ``(B, C, 1, 1)``.

    Args:
        channels: channels of the features.
        reduction: number of channels per hidden unit.

    Example:
        >>> import torch
        >>> output, weights, _ = SqueezeExcitation(6, reduction=3)(torch.zeros(1, 6, 2, 2))
        >>> output.shape, weights.shape
        (torch.Size([1, 6, 2, 2]), torch.Size([1, 6, 1, 1]))
        >>> weights.dense().flatten().tolist()
        [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
    """

    __prepare_scriptable__ = refuse_script

    def __init__(self, channels: int, *, reduction: int = 16) -> None:
        super().__init__()
        check_sizes(type(self).__name__, channels=channels, reduction=reduction)
        self.channels = channels
        hidden = max(1, channels // reduction)
        layers = nn.Linear(channels, hidden, bias=False), nn.ReLU(), nn.Linear(hidden, channels, bias=False)
        self.excite = nn.Sequential(*layers)

    def forward(self, features: Float[Tensor, "B C H W"]) -> AttentionOutput:
        """Multiply the channels by their weights."""
        check_shape(type(self).__name__, "features", features, "batch", self.channels, "height", "width")
        weights = torch.sigmoid(self._logits(features))[:, :, None, None]
        return gated(features, Weights.from_tensor(weights))

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""

    def _logits(self, features: Tensor) -> Tensor:
        logits: Tensor = self.excite(features.mean(dim=(2, 3)))
        return logits
