"""Scaled dot product: the dot product divided by the square root of the size, for unit variance at any size.

    score(q, k) = q · k / sqrt(D)

Paper: Attention Is All You Need (Vaswani et al., 2017), eq. 1, arXiv:1706.03762
Names: q = query (Q in the paper), k = key (K), D = size of both (d_k)
Complexity: O(L · S · D)
Differs: nothing.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from foci.functional.scores import default_scale
from foci.mechanisms.scores.score import ScoreModule, same_size


class ScaledDot(ScoreModule):
    """``q · k / sqrt(D)``: no parameters; query and key have one size.

    Args:
        query_dim: the size of query and key, to be checked; None takes any.
        key_dim: the same size again.

    Example:
        >>> import torch
        >>> ScaledDot()(torch.ones(1, 1, 4), torch.ones(1, 2, 4))
        tensor([[[2., 2.]]])
    """

    def __init__(self, query_dim: int | None = None, key_dim: int | None = None) -> None:
        size = same_size("ScaledDot", query_dim, key_dim)
        super().__init__(size, size)

    def project_query(self, query: Float[Tensor, "#B L D"]) -> Float[Tensor, "#B L D"]:
        """Return the scaled query; scaling it here needs no size in advance."""
        return query * default_scale(query)
