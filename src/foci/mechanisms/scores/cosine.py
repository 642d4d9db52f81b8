"""Cosine score: the cosine of query and key times a learned strength.

    score(q, k) = β · q · k / (|q| |k|)

Paper: Neural Turing Machines (Graves, Wayne, Danihelka, 2014), eqs. 5-6, arXiv:1410.5401
Names: q = query (k_t in the paper), k = key (M_t(i)), β = strength (β_t)
Complexity: O(L · S · D)
Differs: β is a learned parameter, kept positive by exp; the paper's controller emits one at each step (see `ntm`).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.errors import check_positive
from foci.functional.scores import unit
from foci.mechanisms.scores.score import ScoreModule, same_size


class Cosine(ScoreModule):
    """``β · cos(q, k)``; a vector of zeros scores 0.

    Args:
        query_dim: the size of query and key, to be checked; None takes any.
        key_dim: the same size again.
        strength: β at the start of training.

    Example:
        >>> import torch
        >>> Cosine()(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[5.0, 0.0], [0.0, 2.0]]])).round().abs().tolist()
        [[[1.0, 0.0]]]
    """

    def __init__(self, query_dim: int | None = None, key_dim: int | None = None, *, strength: float = 1.0) -> None:
        size = same_size("Cosine", query_dim, key_dim)
        super().__init__(size, size)
        check_positive("Cosine", strength=strength)
        self.log_strength = nn.Parameter(torch.tensor(math.log(strength)))

    def project_query(self, query: Float[Tensor, "#B L D"]) -> Float[Tensor, "#B L D"]:
        """Return ``β q / |q|``."""
        return self.log_strength.exp() * unit(query)

    def project_key(self, key: Float[Tensor, "#B S D"]) -> Float[Tensor, "#B S D"]:
        """Return ``k / |k|``."""
        return unit(key)
