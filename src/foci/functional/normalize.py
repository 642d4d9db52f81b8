"""Dense normalizers: from scores to weights that sum to 1 over the positions that may be read.

Both obey the mask rule of `foci.masks`: masked positions get 0, and a row that may read nothing gets zeros.
The sparse ones are in `foci.functional.sparse`, the hard ones in `foci.functional.sample`.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from foci.checks import check_mask
from foci.masks import masked_softmax


def softmax(scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None = None) -> Float[Tensor, "... L S"]:
    """Return ``exp(s_j) / Σ exp(s)``."""
    return masked_softmax(scores, mask)


def sigmoid(scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None = None) -> Float[Tensor, "... L S"]:
    """Return ``σ(s_j) / Σ σ(s)``: smoothing, for positions of similar importance (Chorowski 2015, section 2.3)."""
    # In log space: where every sigmoid underflows to 0, their shares are still well defined.
    return masked_softmax(torch.nn.functional.logsigmoid(scores), mask)


def unreadable(
    owner: str, scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None
) -> Bool[Tensor, "..."] | None:
    """Return which positions are masked, in a shape that broadcasts with the scores; None when all may be read."""
    return None if mask is None else ~check_mask(owner, mask, scores.shape, scores.device)
