"""Local attention: each query attends only to the 2D+1 positions around its center.

    local-m   p_t = t
    local-p   p_t = S · sigmoid(v_pᵀ tanh(W_p h_t)),   weights = softmax(scores) · exp(−(s − p_t)² / 2σ²),  σ = D/2

Only the positions of the window are computed, so the cost grows with L · (2D+1) and no L×S tensor is built.

Paper: Effective Approaches to Attention-based Neural Machine Translation (Luong, Pham, Manning, 2015), section 3.2
"""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor
from torch.nn import functional as F

from foci.checks import check_mask
from foci.errors import check_positive
from foci.functional import kernels, window_plain
from foci.functional.scores import default_scale, scaled_dot
from foci.functional.window_plain import WindowNormalizer, WindowScore
from foci.outputs import AttentionOutput
from foci.weights import Weights
from foci.weights.sources import Windowed


def local_m(
    query: Float[Tensor, "#B L D"],
    key: Float[Tensor, "#B S D"],
    value: Float[Tensor, "#B S V"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    radius: int,
    start: int = 0,
    score: WindowScore = scaled_dot,
) -> AttentionOutput:
    """Read the positions around position ``start + t`` for query t (monotonic)."""
    steps = torch.arange(start, start + query.shape[1], device=query.device, dtype=torch.float32)
    center = steps.expand(query.shape[0], -1)
    return local(query, key, value, center, mask, radius=radius, score=score)


def local_p(
    query: Float[Tensor, "#B L D"],
    key: Float[Tensor, "#B S D"],
    value: Float[Tensor, "#B S V"],
    center: Num[Tensor, "#B L"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    radius: int,
    score: WindowScore = scaled_dot,
) -> AttentionOutput:
    """Read the positions around ``center``, with weights multiplied by a Gaussian around it (predictive).

    `predicted_center` computes the center of the paper; its gradient flows through the Gaussian.
    """
    return local(query, key, value, center, mask, radius=radius, sigma=radius / 2, score=score)


def predicted_center(logits: Float[Tensor, "#B L"], lengths: Int[Tensor, "#B 1"]) -> Float[Tensor, "#B L"]:
    """Return ``S · sigmoid(logits)``, with S each row's own length."""
    return lengths * torch.sigmoid(at_least_float32(logits))


def at_least_float32(positions: Num[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return the positions precise enough to tell neighbors apart: bfloat16 rounds 257 and 258 to the same number."""
    return positions.to(torch.promote_types(positions.dtype, torch.float32))


def row_lengths(mask: Bool[Tensor, "..."] | None, key: Float[Tensor, "#B S D"]) -> Int[Tensor, "#B 1"]:
    """Return the length of each row's source: one past its last readable position."""
    batch, size = key.shape[:2]
    if mask is None:
        return torch.full((batch, 1), size, device=key.device)
    (batch,) = torch.broadcast_shapes((batch,), mask.shape[:1])
    return one_past_last(mask.any(dim=1).expand(-1, size)).expand(batch, 1)


def one_past_last(readable: Bool[Tensor, "B S"]) -> Int[Tensor, "B 1"]:
    """Return one past the last readable position of each row; 0 where there is none."""
    last = torch.arange(1, readable.shape[-1] + 1, device=readable.device) * readable
    # The prepended 0 makes the maximum of a source without positions 0.
    return F.pad(last, (1, 0)).amax(dim=-1, keepdim=True)


def local(
    query: Float[Tensor, "#B L D"],
    key: Float[Tensor, "#B S D"],
    value: Float[Tensor, "#B S V"],
    center: Num[Tensor, "#B L"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    radius: int,
    sigma: float | None = None,
    score: WindowScore = scaled_dot,
    scale: float | None = None,
    normalize: WindowNormalizer | None = None,
    dropout: float = 0.0,
    bias: Float[Tensor, "#B #L #S"] | None = None,
) -> AttentionOutput:
    """Read the positions s with ``|s − center| ≤ radius``; with ``sigma`` their weights are multiplied by a Gaussian.

    Windows are cut at the ends of the sequence. ``score`` gets ``query (B, L, 1, D)`` and ``key (B, L, W, D)``;
    ``scale`` is that of scaled dot products, for which a kernel gathers no positions. ``bias`` is added to the scores.
    """
    window = _window(query, key, value, center, mask, radius, sigma)
    log_prob = drawn_from = None
    if score is scaled_dot and normalize is None and bias is None and dropout == 0.0:
        scale = default_scale(query) if scale is None else scale
        output, weights = kernels.window.read_dots(query, key, value, window, scale)
    else:
        score = score if scale is None else partial(scaled_dot, scale=scale)
        read = window_plain.read(query, key, value, window, score, normalize, dropout, bias)
        output, weights, log_prob, drawn_from = read
    source = Windowed(weights, window.start, key.shape[1])
    behind = None if drawn_from is None else Windowed(drawn_from, window.start, key.shape[1])
    return AttentionOutput(output, Weights(source, log_prob, behind))


def _window(
    query: Tensor, key: Tensor, value: Tensor, center: Tensor, mask: Tensor | None, radius: int, sigma: float | None
) -> window_plain.LocalWindow:
    check_positive("local attention", radius=radius)
    (batch,) = torch.broadcast_shapes(*(one.shape[:1] for one in (query, key, value, center)))
    center = at_least_float32(center).expand(batch, -1)
    start = torch.ceil(center.detach() - radius).long()
    if mask is not None:
        mask = check_mask("local attention", mask, torch.Size((*start.shape, key.shape[1])), key.device)
    return window_plain.LocalWindow(center, start, mask, radius, sigma)
