"""An output layer whose logits stay within a bound.

    logits = c · tanh(W x / c)

Paper: Gemma 2: Improving Open Language Models at a Practical Size (2024), section 2 "Logit soft-capping"
Names: c = cap, W = weight
Complexity: O(rows · D · V)
Differs: nothing.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from foci.errors import check_positive


class CappedLinear(nn.Linear):
    """A linear layer without a bias whose outputs lie between −cap and cap.

    Example:
        >>> layer = CappedLinear(3, 5, cap=2.0)
        >>> bool((layer(100 * torch.ones(1, 3)).abs() <= 2).all())
        True
    """

    def __init__(self, input_dim: int, output_dim: int, *, cap: float) -> None:
        super().__init__(input_dim, output_dim, bias=False)
        check_positive("CappedLinear", cap=cap)
        self.cap = cap

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        """Return the bounded outputs."""
        return self.cap * torch.tanh(F.linear(x, self.weight) / self.cap)

    def extra_repr(self) -> str:
        """The sizes and the bound, for printing."""
        return f"{super().extra_repr()}, cap={self.cap:g}"
