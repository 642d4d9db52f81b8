"""Sparse normalizers: variants of the softmax that give weight exactly 0 to positions with low scores.

    sparsemax   argmin_p |p − s|² over the simplex:          p_j = max(s_j − τ, 0)
    entmax15    argmax_p p·s + H_1.5(p) over the simplex:    p_j = max(s_j / 2 − τ, 0)²

τ makes the weights sum to 1. It is found exactly, by sorting.

Paper: From Softmax to Sparsemax (Martins, Astudillo, 2016), eq. 2 and algorithm 1; Sparse
    Sequence-to-Sequence Models (Peters, Niculae, Martins, 2019), section 3.
Names: s = scores (z in the papers), p = weights, τ = threshold
Complexity: O(S log S) per row, for the sort.
Differs: nothing; masked positions are left out of the simplex.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from foci.functional.normalize import unreadable
from foci.tracing import is_watched


def sparsemax(scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None = None) -> Float[Tensor, "... L S"]:
    """The point of the simplex nearest to the scores.

        p_j = max(s_j − τ, 0),  τ such that Σ p = 1

    Paper: From Softmax to Sparsemax (Martins, Astudillo, 2016), eq. 2 and algorithm 1, arXiv:1602.02068
    Names: s = scores (z in the paper), p = weights, τ = threshold
    Complexity: O(S log S) per row, for the sort
    Differs: nothing; masked positions are left out of the simplex.
    """
    return _within_mask("sparsemax", _sparsemax, _inside, scores, mask)


def entmax15(scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None = None) -> Float[Tensor, "... L S"]:
    """The 1.5-entmax: half-way between softmax and sparsemax.

        p_j = max(s_j / 2 − τ, 0)²,  τ such that Σ p = 1

    Paper: Sparse Sequence-to-Sequence Models (Peters, Niculae, Martins, 2019), section 3, arXiv:1905.05702
    Names: s = scores (z in the paper), p = weights, τ = threshold
    Complexity: O(S log S) per row, for the sort
    Differs: nothing; masked positions are left out of the simplex.
    """
    return _within_mask("entmax15", _entmax15, _root, scores, mask)


def _within_mask(
    owner: str,
    solve: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor], Tensor],
    scores: Tensor,
    mask: Tensor | None,
) -> Tensor:
    closed = unreadable(owner, scores, mask)
    if scores.shape[-1] == 0:
        return scores
    dtype = scores.dtype
    if dtype.itemsize < 4:
        scores = scores.float()  # running sums over a long row need more than eight bits
    if closed is not None:
        scores = scores.masked_fill(closed, -torch.inf)
    # Neither transform changes when a row is shifted, and both give 0 to a position 2 below the largest: with
    # the largest moved to 0 and the rest cut off at −3, no infinity enters the sums, nor their gradients.
    peak = scores.detach().amax(dim=-1, keepdim=True)
    shifted = (scores - peak.clamp_min(torch.finfo(peak.dtype).min)).clamp_min(-3.0)
    # torch.func and forward mode do not support the Function; torch.compile does.
    plain = not torch.compiler.is_compiling() and is_watched(shifted)
    weights: Tensor = solve(shifted) if plain else _Simplex.apply(shifted, solve, slope)  # type: ignore[no-untyped-call]
    weights = weights.to(dtype)
    return weights if closed is None else weights.masked_fill(closed, 0.0)


def _sparsemax(scores: Tensor) -> Tensor:
    ordered = scores.sort(dim=-1, descending=True).values
    total = ordered.cumsum(dim=-1) - 1.0
    support = _count(_ranks(scores) * ordered > total)
    return (scores - total.gather(-1, support - 1) / support).relu()


def _entmax15(scores: Tensor) -> Tensor:
    halved = scores / 2
    ordered = halved.sort(dim=-1, descending=True).values
    ranks = _ranks(scores)
    mean = ordered.cumsum(dim=-1) / ranks
    mean_square = ordered.square().cumsum(dim=-1) / ranks
    spread = (1.0 / ranks - (mean_square - mean.square())).clamp_min(0.0)
    last = _count(mean - spread.sqrt() <= ordered) - 1
    # Only the root over the support, which is above 0: the derivative of the others could be infinite.
    threshold = mean.gather(-1, last) - spread.gather(-1, last).sqrt()
    return (halved - threshold).relu().square()


def _ranks(scores: Tensor) -> Tensor:
    return torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)


def _count(inside: Tensor) -> Tensor:
    """Count the positions of the support; a row with NaN has none, and takes the threshold NaN of its first one."""
    return inside.sum(dim=-1, keepdim=True).clamp_min(1)


def _inside(weights: Tensor) -> Tensor:
    """Return the slope of sparsemax."""
    return (weights > 0).to(weights.dtype)


def _root(weights: Tensor) -> Tensor:
    """Return the slope of entmax15, ``sqrt(weights)``, with the derivative 0 where a weight is 0."""
    if not torch.is_grad_enabled():
        return weights.sqrt()
    closed = weights == 0  # the derivative of the root itself is infinite there, and NaN after a product with 0
    return weights.masked_fill(closed, 1.0).sqrt().masked_fill(closed, 0.0)


def _times_jacobian(slope: Tensor, change: Tensor) -> Tensor:
    """Return ``J · change`` for ``J = diag(slope) − slope slopeᵀ / Σ slope``, the Jacobian of both transforms."""
    mean = (change * slope).sum(dim=-1, keepdim=True) / slope.sum(dim=-1, keepdim=True)
    return (change - mean) * slope


class _Simplex(torch.autograd.Function):
    """``solve(scores)`` with a gradient that needs the weights alone, where autograd would keep every step of solve."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, solve: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor]
    ) -> Tensor:
        weights = solve(scores)
        ctx.slope = slope
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (weights,) = ctx.saved_tensors
        return _times_jacobian(ctx.slope(weights), grads[0]), None, None  # the Jacobian is symmetric
