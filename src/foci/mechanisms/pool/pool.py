"""Attention pooling: the mean of a sequence, weighted by the softmax of each position's score with a learned vector.

    u_t = tanh(W h_t + b)
    α_t = exp(u_t · u_w) / Σ_j exp(u_j · u_w)
    s   = Σ_t α_t h_t

Paper: Hierarchical Attention Networks for Document Classification (Yang et al., 2016), eqs. 5-7, ACL:N16-1174;
    eqs. 8-10 are the same for sentences
Names: h = value, W and b = project, u_w = context, α = weights, s = output
Complexity: O(S·D·A) time, O(S·A) memory.
Differs: nothing.
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
from foci.recording.recorder import editable
from foci.recording.rereading import Reread
from foci.weights import Weights


def _read(weights: Tensor, value: Tensor) -> Tensor:
    return (weights.unsqueeze(-2) @ value).squeeze(-2)


def _reread(scores: Tensor, value: Tensor, mask: Tensor | None) -> Reread:
    """Return how a pool reads, for `foci.edit`."""

    def limited(open: Tensor) -> AttentionOutput:
        return _pool(scores, value, open if mask is None else open & mask)

    return Reread(lambda weights: _read(weights, value), lambda: mask, limited, has_queries=False)


@editable(_reread)
def _pool(scores: Tensor, value: Tensor, mask: Tensor | None) -> AttentionOutput:
    """Return the mean of the positions by the softmax of their scores."""
    weights = masked_softmax(scores, mask)
    return AttentionOutput(_read(weights, value), Weights.from_tensor(weights))


class AttentionPool(nn.Module):
    """A sequence as one vector: the weighted mean of its positions.

    Call it with ``value (B, S, D)`` and, for padded rows, ``mask (B, S)`` (True = a real position). The output is
    ``(B, D)``, its weights ``(B, S)``. A row without a real position gives zeros.

    Args:
        value_dim: the size D of a position.
        hidden_dim: the size in which positions are compared with the learned vector. Default: D.

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
    """

    __prepare_scriptable__ = refuse_script

    def __init__(self, value_dim: int, hidden_dim: int | None = None) -> None:
        super().__init__()
        hidden_dim = value_dim if hidden_dim is None else hidden_dim
        check_sizes("AttentionPool", value_dim=value_dim, hidden_dim=hidden_dim)
        self.value_dim = value_dim
        self.project = nn.Linear(value_dim, hidden_dim)
        self.context = nn.Parameter(torch.empty(hidden_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the parameters; the learned vector like a row of `torch.nn.Linear`."""
        self.project.reset_parameters()
        bound = 1.0 / math.sqrt(self.context.numel())
        nn.init.uniform_(self.context, -bound, bound)

    def forward(self, value: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"] | None = None) -> AttentionOutput:
        """Pool every row of the batch."""
        check_shape("AttentionPool", "value", value, "batch", "position", self.value_dim)
        if mask is not None:
            check_valid("AttentionPool", "mask", mask, value.shape[0], value.shape[1], value.device)
            value = clear_unreadable(value, mask.unsqueeze(1))
        scores = torch.tanh(self.project(value)) @ self.context
        return _pool(scores, value, mask)

    if TYPE_CHECKING:

        @called_as(forward)
        def __call__(self) -> None:
            """Call `forward`, as torch does."""
