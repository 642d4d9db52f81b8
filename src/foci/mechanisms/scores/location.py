"""Location score: the query alone determines the scores of the positions; the content of the keys is not used.

    scores = W q,  one row of W per position

Paper: Effective Approaches to Attention-based Neural Machine Translation (Luong, Pham, Manning, 2015),
    eq. 8 "location", arXiv:1508.04025
Names: q = query (h_t in the paper), W = weight (W_a)
Complexity: O(L · S · Dq)
Differs: a source with fewer positions than W has rows uses the first rows; a longer one is an error.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.errors import ConfigError, ShapeError
from foci.mechanisms.parts import Sizes
from foci.mechanisms.scores.score import ScoreModule


class Location(ScoreModule):
    """``W q`` over positions.

    Args:
        query_dim: size of the query.
        max_length: the longest source.

    Example:
        >>> import torch
        >>> Location(3, max_length=11)(torch.zeros(2, 7, 3), torch.zeros(2, 5, 13)).shape
        torch.Size([2, 7, 5])
    """

    def __init__(self, query_dim: int, key_dim: int | None = None, *, max_length: int) -> None:
        super().__init__(query_dim, key_dim)
        self.weight = nn.Parameter(torch.empty(max_length, query_dim))
        nn.init.xavier_uniform_(self.weight)

    @classmethod
    def build(cls, sizes: Sizes) -> Location:
        """Return a new score of these sizes."""
        if sizes.query_dim is None or sizes.max_length is None:
            raise ConfigError(
                f"Attention: query_dim is {sizes.query_dim} and max_length is {sizes.max_length}, expected both for "
                "score 'location', which has one row per position."
            )
        return cls(sizes.query_dim, sizes.key_dim, max_length=sizes.max_length)

    def extra_repr(self) -> str:
        """Return the sizes, for printing."""
        return f"{super().extra_repr()}, max_length={self.weight.shape[0]}"

    @property
    def projected_dim(self) -> int | None:
        """The size of the query."""
        return self.weight.shape[1]

    def project_key(self, key: Float[Tensor, "#B S Dk"]) -> Float[Tensor, "#B S Dq"]:
        """Return the rows of W that belong to the key's positions: W q is then a dot product with them."""
        batch, size = key.shape[:2]
        if size > self.weight.shape[0]:
            raise ShapeError(
                f"Location: key has shape {tuple(key.shape)}, expected (batch, key ≤ {self.weight.shape[0]}, feature). "
                f"Build it with max_length={size} or more."
            )
        return self.weight[:size].expand(batch, -1, -1)
