"""Additive score: a network with one hidden layer scores query and key.

    score(s, h) = vᵀ tanh(W s + U h)

Paper: Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau, Cho, Bengio, 2015),
    appendix A.1.2, arXiv:1409.0473
Names: s = query (s_{i-1} in the paper), h = key (h_j), W = query_layer (W_a), U = key_layer (U_a), v = vector (v_a)
Complexity: O(S · Dk · A) once per source, then O(L · Dq · A + L · S · A)
Differs: a bias may be added inside the tanh (bias=True); the paper has none.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from foci.mechanisms.scores.score import TanhScore
from foci.torch_private import submodules


class Additive(TanhScore):
    """``vᵀ tanh(W s + U h)``.

    Args:
        query_dim: size of the query.
        key_dim: size of the key.
        hidden_dim: size of the hidden layer. Default: the query's.
        bias: add a bias inside the tanh.

    Example:
        >>> import torch
        >>> Additive(3, 5, 7)(torch.zeros(2, 11, 3), torch.zeros(2, 13, 5)).shape
        torch.Size([2, 11, 13])
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int | None = None, *, bias: bool = False) -> None:
        hidden_dim = query_dim if hidden_dim is None else hidden_dim
        super().__init__(query_dim, key_dim, hidden_dim)
        self.query_layer = nn.Linear(query_dim, hidden_dim, bias=False)
        self.key_layer = nn.Linear(key_dim, hidden_dim, bias=bias)

    def project_query(self, query: Float[Tensor, "#B L Dq"]) -> Float[Tensor, "#B L A"]:
        """Return ``W s``."""
        projected: Tensor = submodules(self)["query_layer"](query)
        return projected

    def project_key(self, key: Float[Tensor, "#B S Dk"]) -> Float[Tensor, "#B S A"]:
        """Return ``U h``."""
        projected: Tensor = submodules(self)["key_layer"](key)
        return projected
