"""Local attention: each query reads only the 2D+1 cells around its centre.

    local-m   p_t = t
    local-p   p_t = S · sigmoid(v_pᵀ tanh(W_p h_t)),   weights = softmax(scores) · exp(−(s − p_t)² / 2σ²),  σ = D/2

The cells of the window are gathered, so the cost grows with L · (2D+1) and L×S is never built.

Paper: Effective Approaches to Attention-based Neural Machine Translation (Luong, Pham, Manning, 2015), section 3.2
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor
from torch.nn import functional as F

from foci.errors import check_mask, check_positive
from foci.functional.scores import scaled_dot
from foci.masks import masked_softmax
from foci.results import Attended, Weights, Windowed

CellScore = Callable[[Tensor, Tensor], Tensor]
CellNormaliser = Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]


def local_m(
    query: Float[Tensor, "B L D"],
    key: Float[Tensor, "B S D"],
    value: Float[Tensor, "B S V"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    radius: int,
    start: int = 0,
    score: CellScore = scaled_dot,
) -> Attended:
    """Monotonic: query t reads the cells around cell ``start + t``."""
    steps = torch.arange(start, start + query.shape[1], device=query.device, dtype=torch.float32)
    centre = steps.expand(query.shape[0], -1)
    return local(query, key, value, centre, mask, radius=radius, score=score)


def local_p(
    query: Float[Tensor, "B L D"],
    key: Float[Tensor, "B S D"],
    value: Float[Tensor, "B S V"],
    centre: Num[Tensor, "B L"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    radius: int,
    score: CellScore = scaled_dot,
) -> Attended:
    """Predictive: query t reads the cells around ``centre``, favouring the near ones by a Gaussian.

    `predicted_centre` makes the centre of the paper; its gradient flows through the Gaussian.
    """
    return local(query, key, value, centre, mask, radius=radius, sigma=radius / 2, score=score)


def predicted_centre(logits: Float[Tensor, "B L"], lengths: Int[Tensor, "B 1"]) -> Float[Tensor, "B L"]:
    """``S · sigmoid(logits)``, with S each row's own length."""
    return lengths * torch.sigmoid(at_least_float32(logits))


def at_least_float32(positions: Num[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The same numbers with digits enough to count cells: bfloat16 cannot tell cell 257 from 258."""
    return positions.to(torch.promote_types(positions.dtype, torch.float32))


def row_lengths(mask: Bool[Tensor, "..."] | None, key: Float[Tensor, "B S D"]) -> Int[Tensor, "B 1"]:
    """How far each row's source reaches: one past its last readable cell."""
    batch, size = key.shape[:2]
    if mask is None:
        return torch.full((batch, 1), size, device=key.device)
    last = torch.arange(1, size + 1, device=key.device) * mask.any(dim=1)
    # The 0 put in front makes the maximum of a source without cells 0.
    return F.pad(last, (1, 0)).amax(dim=-1, keepdim=True).expand(batch, 1)


def local(
    query: Float[Tensor, "B L D"],
    key: Float[Tensor, "B S D"],
    value: Float[Tensor, "B S V"],
    centre: Num[Tensor, "B L"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    radius: int,
    sigma: float | None = None,
    score: CellScore = scaled_dot,
    normalise: CellNormaliser | None = None,
    dropout: float = 0.0,
) -> Attended:
    """Read the cells s with ``|s − centre| ≤ radius``; a ``sigma`` multiplies the Gaussian onto their weights.

    Windows are cut at the ends of the sentence. ``score`` sees ``query (B, L, 1, D)`` and ``key (B, L, W, D)``.
    """
    check_positive("local attention", radius=radius)
    size = key.shape[1]
    shape = torch.Size((query.shape[0], query.shape[1], size))
    centre = at_least_float32(centre)
    start = torch.ceil(centre.detach() - radius).long()
    cells = start.unsqueeze(-1) + torch.arange(2 * radius + 1, device=query.device)
    distance = cells - centre.unsqueeze(-1)
    # A centre between two cells has 2D of them within reach, and the last of the 2D+1 gathered is too far.
    readable = (cells >= 0) & (cells < size) & (distance.detach() <= radius)
    cells = cells.clamp(0, max(size - 1, 0))
    if mask is not None:
        fitted = check_mask("local attention", mask, shape, key.device)
        if size:
            readable = readable & fitted.expand(shape).gather(-1, cells)
    scores = score(query.unsqueeze(2), gather_cells(key, cells))
    if normalise is None:
        weights, log_prob = masked_softmax(scores, readable.unsqueeze(2)), None
    else:
        weights, log_prob = normalise(scores, readable.unsqueeze(2))
        log_prob = None if log_prob is None else log_prob.squeeze(2)
    if sigma is not None:
        gaussian = torch.exp(-distance.square() / (2 * sigma**2))
        weights = weights * gaussian.unsqueeze(2).to(weights.dtype)
    output = (F.dropout(weights, dropout) @ gather_cells(value, cells)).squeeze(2)
    return Attended(output, Weights(Windowed(weights.squeeze(2), start, size), log_prob))


def gather_cells(sequence: Float[Tensor, "B S D"], cells: Int[Tensor, "B L W"]) -> Float[Tensor, "B L W D"]:
    """The cells with these numbers, for each query."""
    batch, length, width = cells.shape
    if sequence.shape[1] == 0:
        return sequence.new_zeros(batch, length, width, sequence.shape[-1])
    rows = sequence.expand(batch, -1, -1)
    index = cells.reshape(batch, length * width, 1).expand(-1, -1, sequence.shape[-1])
    return rows.gather(1, index).reshape(batch, length, width, sequence.shape[-1])
