"""The position-wise feed-forward network: the same two layers for every position.

    FFN(x) = max(0, x W₁ + b₁) W₂ + b₂

Paper: Attention Is All You Need (Vaswani et al., 2017), eq. 2; max(0, x)²: Primer (So et al., 2021), section 4.2
Names: W_1 = inner_layer, W_2 = outer_layer, d_ff = hidden_dim
Complexity: O(L · D · d_ff)
Differs: GELU and the square of ReLU are options, and so is dropout between the layers; the paper has none of them.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from foci.checks import check_shape
from foci.errors import unknown_name
from foci.functional.mean_square import squared_relu
from foci.layers.dropout import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "relu2": squared_relu}


class FeedForward(nn.Module):
    """Two linear layers with an activation between them.

    Args:
        model_dim: size of input and output.
        hidden_dim: size between the layers.
        activation: "relu", "gelu" or "relu2" (the square of ReLU).
        dropout: share of the inner features dropped in training.
        bias: give both layers a bias.

    Example:
        >>> import torch
        >>> FeedForward(4, 8)(torch.zeros(2, 3, 4)).shape
        torch.Size([2, 3, 4])
    """

    def __init__(
        self, model_dim: int, hidden_dim: int, *, activation: str = "relu", dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise unknown_name("activation", activation, ACTIVATIONS)
        self.model_dim = model_dim
        self.activation = activation
        self.inner_layer = nn.Linear(model_dim, hidden_dim, bias=bias)
        self.outer_layer = nn.Linear(hidden_dim, model_dim, bias=bias)
        self.dropout = Dropout(dropout)
        for layer in (self.inner_layer, self.outer_layer):
            nn.init.xavier_uniform_(layer.weight)
            if bias:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        """Return the output of each position."""
        check_shape("FeedForward", "x", x, "…", self.model_dim)
        output: Tensor = self.outer_layer(self.dropout(ACTIVATIONS[self.activation](self.inner_layer(x))))
        return output
