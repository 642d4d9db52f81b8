"""Sums and searches over rows of weights, ``(…, S)``."""

from __future__ import annotations

import torch
from torch import Tensor

from foci.masks import masked_softmax

_GROUPS = 512
"""Number of groups into which `largest_weights` divides a long row."""


def entropy_of_weights(weights: Tensor) -> Tensor:
    """Return the entropy of each row in nats, ``(…, 1)``."""
    # The floor keeps log finite at weight 0, where the product and its gradient are 0.
    tiny = torch.finfo(weights.dtype).tiny
    return (weights * -weights.clamp_min(tiny).log()).sum(dim=-1, keepdim=True)


def entropy_of_scores(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the entropy of the softmax of each row of scores, with one logarithm per row.

        −Σ w log w = −log max w − Σ w · (s − max s)

    Both terms have the same sign, so that small entropies stay precise.
    """
    weights = masked_softmax(scores, mask)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    below = scores - scores.amax(dim=-1, keepdim=True)
    if mask is not None:
        below = below.masked_fill(~mask, 0.0)
    highest = weights.amax(dim=-1, keepdim=True)
    entropy: Tensor = -highest.log() - torch.linalg.vecdot(weights, below).unsqueeze(-1)
    return entropy.masked_fill(highest == 0.0, 0.0)


def largest_weights(weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest weights of each row and their positions, as torch.topk does."""
    # The k largest of a long row lie in the k groups of positions with the largest maxima.
    size = weights.shape[-1]
    if k == 1:
        return torch.max(weights, dim=-1, keepdim=True)  # the first of equal ones
    if weights.device.type != "cpu" or size < 4 * _GROUPS or 8 * k > _GROUPS:
        return torch.topk(weights, k, dim=-1)
    whole = size - size % _GROUPS
    groups = weights[..., :whole].unflatten(-1, (-1, _GROUPS))
    chosen = groups.amax(dim=-2).topk(k, dim=-1, sorted=False).indices
    firsts = torch.arange(0, whole, _GROUPS, device=weights.device)
    positions = (firsts.unsqueeze(-1) + chosen.unsqueeze(-2)).flatten(-2)
    if whole < size:
        rest = torch.arange(whole, size, device=weights.device)
        positions = torch.cat([positions, rest.expand(*positions.shape[:-1], -1)], dim=-1)
    values, order = weights.gather(-1, positions).topk(k, dim=-1)
    return values, positions.gather(-1, order)
