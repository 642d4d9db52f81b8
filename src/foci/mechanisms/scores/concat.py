"""Concat score: the network of the additive score over the concatenation of query and key.

    score(q, k) = vᵀ tanh(W [q; k])

Paper: Effective Approaches to Attention-based Neural Machine Translation (Luong, Pham, Manning, 2015),
    section 3.1 "concat", arXiv:1508.04025
Names: q = query (h_t in the paper), k = key (h̄_s), W = weight (W_a), v = vector (v_a)
Complexity: O(S · Dk · A) once per source, then O(L · Dq · A + L · S · A)
Differs: nothing; W [q; k] is computed as W_q q + W_k k, which is the same and never builds the pairs.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.mechanisms.scores.score import TanhScore


class Concat(TanhScore):
    """``vᵀ tanh(W [q; k])``.

    Args:
        query_dim: size of the query.
        key_dim: size of the key.
        hidden_dim: rows of W. Default: the query's size.

    Example:
        >>> import torch
        >>> Concat(3, 5, 7)(torch.zeros(2, 11, 3), torch.zeros(2, 13, 5)).shape
        torch.Size([2, 11, 13])
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int | None = None) -> None:
        hidden_dim = query_dim if hidden_dim is None else hidden_dim
        super().__init__(query_dim, key_dim, hidden_dim)
        self.weight = nn.Parameter(torch.empty(hidden_dim, query_dim + key_dim))
        nn.init.xavier_uniform_(self.weight)

    def extra_repr(self) -> str:
        """Return the sizes, for printing."""
        return f"{super().extra_repr()}, hidden_dim={self.weight.shape[0]}"

    def project_query(self, query: Float[Tensor, "#B L Dq"]) -> Float[Tensor, "#B L A"]:
        """Return ``W_q q``, with the left columns of W."""
        return query @ self.weight[:, : query.shape[-1]].mT

    def project_key(self, key: Float[Tensor, "#B S Dk"]) -> Float[Tensor, "#B S A"]:
        """Return ``W_k k``, with the right columns of W."""
        return key @ self.weight[:, -key.shape[-1] :].mT
