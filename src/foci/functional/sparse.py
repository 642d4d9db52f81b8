"""Sparse normalisers: softmax's relatives that give exactly 0 to cells that fit badly.

    sparsemax   argmin_p |p − s|² over the simplex:          p_j = max(s_j − τ, 0)
    entmax15    argmax_p p·s + H_1.5(p) over the simplex:    p_j = max(s_j / 2 − τ, 0)²

τ makes the weights sum to 1. It is found exactly, by sorting.

Paper: From Softmax to Sparsemax (Martins, Astudillo, 2016), eq. 2 and algorithm 1; Sparse
    Sequence-to-Sequence Models (Peters, Niculae, Martins, 2019), section 3.
Names: z = scores, p = weights, τ = threshold
Complexity: O(S log S) a row, for the sort.
Differs: nothing; masked cells are left out of the simplex.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from foci.functional.normalise import unreadable


def sparsemax(scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None = None) -> Float[Tensor, "... L S"]:
    """The point of the simplex nearest to the scores.

        p_j = max(s_j − τ, 0),  τ such that Σ p = 1

    Paper: From Softmax to Sparsemax (Martins, Astudillo, 2016), eq. 2 and algorithm 1
    Names: z = scores, p = weights, τ = threshold
    Complexity: O(S log S) a row, for the sort
    Differs: nothing; masked cells are left out of the simplex.
    """
    return _within_mask("sparsemax", _Sparsemax, scores, mask)


def entmax15(scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None = None) -> Float[Tensor, "... L S"]:
    """The 1.5-entmax: half-way between softmax and sparsemax.

        p_j = max(s_j / 2 − τ, 0)²,  τ such that Σ p = 1

    Paper: Sparse Sequence-to-Sequence Models (Peters, Niculae, Martins, 2019), section 3
    Names: z = scores, p = weights, α = 1.5, τ = threshold
    Complexity: O(S log S) a row, for the sort
    Differs: nothing; masked cells are left out of the simplex.
    """
    return _within_mask("entmax15", _Entmax15, scores, mask)


def _within_mask(owner: str, transform: type[torch.autograd.Function], scores: Tensor, mask: Tensor | None) -> Tensor:
    closed = unreadable(owner, scores, mask)
    if scores.shape[-1] == 0:
        return scores
    dtype = scores.dtype
    if dtype.itemsize < 4:
        scores = scores.float()  # running sums over a long row need more than eight bits
    if closed is not None:
        scores = scores.masked_fill(closed, -torch.inf)
    # Neither transform changes when a row is shifted, and both give 0 to a cell 2 below the largest: with
    # the largest moved to 0 and the rest cut off at −3, no infinity enters the sums, nor their gradients.
    peak = scores.detach().amax(dim=-1, keepdim=True)
    shifted = scores - peak.masked_fill(peak == -torch.inf, 0.0)
    weights: Tensor = transform.apply(shifted.clamp_min(-3.0)).to(dtype)
    return weights if closed is None else weights.masked_fill(closed, 0.0)


def _ranks(scores: Tensor) -> Tensor:
    return torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)


class _Sparsemax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        ordered = scores.sort(dim=-1, descending=True).values
        total = ordered.cumsum(dim=-1) - 1.0
        ranks = _ranks(scores)
        support = (ranks * ordered > total).sum(dim=-1, keepdim=True)
        threshold = total.gather(-1, support - 1) / support
        weights = (scores - threshold).clamp_min(0.0)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (grad,) = grads
        (weights,) = ctx.saved_tensors
        inside = weights > 0
        mean = (grad * inside).sum(dim=-1, keepdim=True) / inside.sum(dim=-1, keepdim=True)
        result: Tensor = (grad - mean) * inside
        return result


class _Entmax15(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        halved = scores / 2
        ordered = halved.sort(dim=-1, descending=True).values
        ranks = _ranks(scores)
        mean = ordered.cumsum(dim=-1) / ranks
        mean_square = ordered.square().cumsum(dim=-1) / ranks
        spread = (1.0 / ranks - (mean_square - mean.square())).clamp_min(0.0)
        candidates = mean - spread.sqrt()
        support = (candidates <= ordered).sum(dim=-1, keepdim=True)
        threshold = candidates.gather(-1, support - 1)
        weights = (halved - threshold).clamp_min(0.0).square()
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (grad,) = grads
        (weights,) = ctx.saved_tensors
        slope = weights.sqrt()
        mean = (grad * slope).sum(dim=-1, keepdim=True) / slope.sum(dim=-1, keepdim=True)
        result: Tensor = (grad - mean) * slope
        return result
