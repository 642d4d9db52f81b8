"""Dot-product score: the score of a key is its dot product with the query.

    score(q, k) = q · k

Paper: Effective Approaches to Attention-based Neural Machine Translation (Luong, Pham, Manning, 2015),
    section 3.1 "dot", arXiv:1508.04025
Names: q = query (h_t in the paper), k = key (h̄_s)
Complexity: O(L · S · D)
Differs: nothing.
"""

from __future__ import annotations

from foci.mechanisms.scores.score import ScoreModule, same_size


class Dot(ScoreModule):
    """``q · k``: no parameters; query and key have one size.

    Args:
        query_dim: the size of query and key, to be checked; None takes any.
        key_dim: the same size again.

    Example:
        >>> import torch
        >>> Dot()(torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[3.0, 4.0], [0.0, 1.0]]]))
        tensor([[[11.,  2.]]])
    """

    def __init__(self, query_dim: int | None = None, key_dim: int | None = None) -> None:
        size = same_size("Dot", query_dim, key_dim)
        super().__init__(size, size)
