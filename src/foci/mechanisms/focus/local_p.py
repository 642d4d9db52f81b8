"""Local attention, predictive: the query predicts the center of a window, whose positions a Gaussian weights.

    p_t = S · sigmoid(v_pᵀ tanh(W_p h_t)),   weights = align(h_t, h̄_s) · exp(−(s − p_t)² / 2σ²),   σ = D/2

Paper: Effective Approaches to Attention-based Neural Machine Translation (Luong, Pham, Manning, 2015),
    eqs. 9-10 "local-p", arXiv:1508.04025
Names: h_t = query, p_t = center, D = radius, W_p = layer, v_p = vector, S = lengths
Complexity: O(L · (2D+1) · Dk): only the window is computed, no L×S tensor is built
Differs: positions are counted from 0. As in the paper the Gaussian comes after the softmax, so weights sum to less than
    1.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from foci.errors import ConfigError
from foci.functional.windows import predicted_center
from foci.mechanisms.focus.local_window import LocalWindow, radius_of
from foci.mechanisms.parts import Sizes


class LocalP(LocalWindow):
    """Predict the window's center from the query; S is each row's own length.

    Example:
        >>> import torch
        >>> focus = LocalP(3, 5, radius=2)
        >>> center, state = focus.center(torch.zeros(1, 4, 3), torch.tensor([[7]]), None)
        >>> center
        tensor([[3.5000, 3.5000, 3.5000, 3.5000]], grad_fn=<MulBackward0>)
    """

    def __init__(self, query_dim: int, hidden_dim: int | None = None, *, radius: int) -> None:
        super().__init__(radius)
        hidden_dim = query_dim if hidden_dim is None else hidden_dim
        self.sigma = radius / 2
        self.layer = nn.Linear(query_dim, hidden_dim, bias=False)
        self.vector = nn.Parameter(torch.empty(hidden_dim))
        nn.init.uniform_(self.vector, -(hidden_dim**-0.5), hidden_dim**-0.5)

    @classmethod
    def build(cls, sizes: Sizes) -> LocalP:
        """Return a new focus of this radius."""
        radius = radius_of("local_p", sizes)
        if sizes.query_dim is None:
            raise ConfigError("Attention: focus 'local_p' predicts from the query and needs query_dim.")
        return cls(sizes.query_dim, sizes.hidden_dim, radius=radius)

    def center(
        self, query: Float[Tensor, "#B L D"], lengths: Int[Tensor, "#B 1"], state: None
    ) -> tuple[Float[Tensor, "#B L"], None]:
        """Return the predicted centers; no state is needed."""
        return predicted_center(torch.tanh(self.layer(query)) @ self.vector, lengths), None
