"""Attention pooling: the mean of a sequence, weighted by the softmax of each position's score with a learned vector.

    u_t = tanh(W h_t + b)
    α_t = exp(u_t · u_w) / Σ_j exp(u_j · u_w)
    s   = Σ_t α_t h_t
    with k learned vectors u_q instead of u_w: α_qt = softmax_t(u_t · u_q),  s_q = Σ_t α_qt h_t

Paper: Hierarchical Attention Networks for Document Classification (Yang et al., 2016), eqs. 5-7, ACL:N16-1174;
    eqs. 8-10 are the same for sentences; k vectors: A Structured Self-attentive Sentence Embedding (Lin et al., 2017),
    eqs. 6-7, arXiv:1703.03130
Names: h = value, W and b = project (W = W_s1 of Lin et al.), u_w and u_q = context (W_s2), α = weights (A),
    s = output (M), k = num_queries
Complexity: O(S·D·A + S·A·k) time, O(S·(A + k)) memory.
Differs: k vectors have the bias b too. Later papers call such vectors queries, and compare them by scaled dot products
    of several heads: seeds of the Set Transformer's PMA (Lee et al., 2019, section 3.2, arXiv:1810.00825), latents of
    the Perceiver (Jaegle et al., 2021, arXiv:2103.03206), object queries of DETR (Carion et al., 2020,
    arXiv:2005.12872). That is `multi_head` with a parameter as its query; with one head its weights are these without
    the tanh.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.checks import check_shape, check_valid, refuse_script
from foci.errors import check_sizes
from foci.masks import clear_unreadable, masked_softmax
from foci.outputs import AttentionOutput, called_as
from foci.recording.rereading import Reread
from foci.recording.watching import editable
from foci.weights import Weights


def _read(weights: Tensor, value: Tensor) -> Tensor:
    if weights.dim() == value.dim():
        return weights @ value
    return (weights.unsqueeze(-2) @ value).squeeze(-2)


def _reread(scores: Tensor, value: Tensor, mask: Tensor | None) -> Reread:
    """Return how a pool reads, for `foci.edit`."""

    def limited(open: Tensor) -> AttentionOutput:
        return _pool(scores, value, open if mask is None else open & mask)

    return Reread(lambda weights: _read(weights, value), lambda: mask, limited, has_queries=False)


@editable(_reread)
def _pool(scores: Tensor, value: Tensor, mask: Tensor | None) -> AttentionOutput:
    """Return the mean of the positions by the softmax of their scores, or one mean for each row of scores."""
    weights = masked_softmax(scores, mask)
    return AttentionOutput(_read(weights, value), Weights.from_tensor(weights))


class AttentionPool(nn.Module):
    """A sequence as one vector, or as a few: weighted means of its positions.

    Call it with ``value (B, S, D)`` and, for padded rows, ``mask (B, S)`` (True = a real position). The output is
    ``(B, D)``, its weights ``(B, S)``; with ``num_queries`` they are ``(B, k, D)`` and ``(B, k, S)``. A row without a
    real position gives zeros.

    Args:
        value_dim: the size D of a position.
        hidden_dim: the size in which positions are compared with the learned vectors. Default: D.
        num_queries: k, the number of learned vectors, each of which reads for itself. Default: one, without an axis.

    Example:
        >>> import torch
        >>> from foci import masks
        >>> pool = AttentionPool(3)
        >>> value = torch.ones(2, 5, 3)
        >>> output, weights, _ = pool(value, masks.lengths([2, 0], 5))
        >>> output.shape, weights.dense().tolist()[0]
        (torch.Size([2, 3]), [0.5, 0.5, 0.0, 0.0, 0.0])
        >>> output[1].tolist()
        [0.0, 0.0, 0.0]
        >>> AttentionPool(3, num_queries=4)(value).output.shape
        torch.Size([2, 4, 3])
    """

    __prepare_scriptable__ = refuse_script

    def __init__(self, value_dim: int, hidden_dim: int | None = None, *, num_queries: int | None = None) -> None:
        super().__init__()
        hidden_dim = value_dim if hidden_dim is None else hidden_dim
        check_sizes("AttentionPool", value_dim=value_dim, hidden_dim=hidden_dim, num_queries=num_queries)
        self.value_dim = value_dim
        self.num_queries = num_queries
        self.project = nn.Linear(value_dim, hidden_dim)
        self.context = nn.Parameter(torch.empty(hidden_dim if num_queries is None else (num_queries, hidden_dim)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the parameters; each learned vector like a row of `torch.nn.Linear`."""
        self.project.reset_parameters()
        bound = 1.0 / math.sqrt(self.context.shape[-1])
        nn.init.uniform_(self.context, -bound, bound)

    def extra_repr(self) -> str:
        """Return the number of queries, for printing."""
        return "" if self.num_queries is None else f"num_queries={self.num_queries}"

    def forward(self, value: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"] | None = None) -> AttentionOutput:
        """Pool every row of the batch."""
        check_shape("AttentionPool", "value", value, "batch", "position", self.value_dim)
        if mask is not None:
            check_valid("AttentionPool", "mask", mask, value.shape[0], value.shape[1], value.device)
            value = clear_unreadable(value, mask.unsqueeze(1))
        compared = torch.tanh(self.project(value))
        if self.num_queries is None:
            return _pool(compared @ self.context, value, mask)
        return _pool(self.context @ compared.mT, value, None if mask is None else mask.unsqueeze(1))

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""
