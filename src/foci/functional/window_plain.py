"""The positions of local attention's windows in plain torch: gathered, scored, normalized and read.

    window of query t: the positions s with  ceil(p_t − D) ≤ s ≤ p_t + D,   at most 2D+1 of them

`foci.functional.windows` calls it; `foci.functional.kernels.window` computes the same for dot products with a
softmax, and falls back to here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from foci.functional.sample import Drawn
from foci.masks import masked_softmax

WindowScore = Callable[[Tensor, Tensor], Tensor]
WindowNormalizer = Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None] | Drawn]


class LocalWindow(NamedTuple):
    """The positions of each query: the window around ``center (B, L)`` from position ``start (B, L)`` on.

    ``mask`` has three axes, of the sizes (B, L, S) or 1. With ``sigma``, weights are multiplied by a Gaussian.
    """

    center: Tensor
    start: Tensor
    mask: Tensor | None
    radius: int
    sigma: float | None


def read(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: LocalWindow,
    score: WindowScore,
    normalize: WindowNormalizer | None = None,
    dropout: float = 0.0,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return the output ``(B, L, V)`` and the weights ``(B, L, W)`` of the window.

    Of what was sampled also the log-probability and the probabilities, before any Gaussian. ``bias``, which broadcasts
    to ``(B, L, S)``, is added to the scores.
    """
    center, start, mask, radius, sigma = window
    size = key.shape[1]
    positions = start.unsqueeze(-1) + torch.arange(2 * radius + 1, device=start.device)
    distance = positions - center.unsqueeze(-1)
    # A center between two positions has only 2D positions within the radius; the last of the 2D+1 gathered is outside.
    readable = (positions >= 0) & (positions < size) & (distance.detach() <= radius)
    positions = positions.clamp(0, max(size - 1, 0))
    if mask is not None and size:
        readable = readable & mask.expand(*start.shape, size).gather(-1, positions)
    scores = score(query.unsqueeze(2), gather_positions(key, positions))
    if bias is not None and size:
        scores = scores + bias.expand(*start.shape, size).gather(-1, positions).unsqueeze(2)
    sampled: list[Tensor | None] = []
    if normalize is None:
        weights = masked_softmax(scores, readable.unsqueeze(2))
    else:
        weights, *sampled = normalize(scores, readable.unsqueeze(2))
    log_prob, probabilities, *_ = (*(None if one is None else one.squeeze(2) for one in sampled), None, None)
    if sigma is not None:
        gaussian = torch.exp(-distance.square() / (2 * sigma**2))
        weights = weights * gaussian.unsqueeze(2).to(weights.dtype)
    output = (F.dropout(weights, dropout) @ gather_positions(value, positions)).squeeze(2)
    return output, weights.squeeze(2), log_prob, probabilities


def read_dots(query: Tensor, key: Tensor, value: Tensor, window: LocalWindow, scale: float) -> tuple[Tensor, Tensor]:
    """Return output and weights for a softmax over ``scale · q · k``."""
    output, weights, *_ = read(query, key, value, window, lambda query, key: (query * scale) @ key.mT)
    return output, weights


def gather_positions(sequence: Float[Tensor, "Bs S D"], positions: Int[Tensor, "#B L W"]) -> Float[Tensor, "#B L W D"]:
    """Return the positions with these indices, for each query; a batch of 1 broadcasts."""
    batch, length, width = positions.shape
    rows, size, features = sequence.shape
    if size == 0:
        return sequence.new_zeros(batch, length, width, features)
    if rows != 1:
        positions = positions + size * torch.arange(batch, device=positions.device).view(-1, 1, 1)
    # index_select copies whole rows, where gather would look up each number.
    gathered = sequence.reshape(rows * size, features).index_select(0, positions.flatten())
    return gathered.view(batch, length, width, features)
