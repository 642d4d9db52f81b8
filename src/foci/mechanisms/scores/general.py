"""General (bilinear) score: a learned matrix between query and key, which may differ in size.

    score(q, k) = qᵀ W k

Paper: Effective Approaches to Attention-based Neural Machine Translation (Luong, Pham, Manning, 2015),
    section 3.1 "general", arXiv:1508.04025
Names: q = query (h_t in the paper), k = key (h̄_s), W = weight (W_a)
Complexity: O(S · Dq · Dk) once per source, then O(L · S · Dq)
Differs: nothing; W is applied to the keys, so that a decoder does it once.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.mechanisms.parts import Sizes
from foci.mechanisms.scores.score import ScoreModule, both_sizes


class General(ScoreModule):
    """``qᵀ W k``.

    Args:
        query_dim: size of the query.
        key_dim: size of the key.

    Example:
        >>> import torch
        >>> General(3, 5)(torch.zeros(2, 7, 3), torch.zeros(2, 11, 5)).shape
        torch.Size([2, 7, 11])
    """

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__(query_dim, key_dim)
        self.weight = nn.Parameter(torch.empty(query_dim, key_dim))
        nn.init.xavier_uniform_(self.weight)

    @classmethod
    def build(cls, sizes: Sizes) -> General:
        """Return a new score of these sizes."""
        return cls(*both_sizes(cls, sizes))

    @property
    def projected_dim(self) -> int | None:
        """The size of the query."""
        return self.weight.shape[0]

    def project_key(self, key: Float[Tensor, "#B S Dk"]) -> Float[Tensor, "#B S Dq"]:
        """Return ``W k``."""
        return key @ self.weight.mT
