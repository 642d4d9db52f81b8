"""Local attention, monotonic: query t attends to the positions around position t.

    p_t = t,   the window is [p_t − D, p_t + D], cut at the ends of the sentence

Paper: Effective Approaches to Attention-based Neural Machine Translation (Luong, Pham, Manning, 2015),
    section 3.2 "local-m", arXiv:1508.04025
Names: p_t = center, D = radius, t = state
Complexity: O(L · (2D+1) · Dk): only the window is computed, no L×S tensor is built
Differs: positions are counted from 0.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foci.checks import check_ids
from foci.mechanisms.focus.local_window import LocalWindow, radius_of
from foci.mechanisms.parts import Sizes


class LocalM(LocalWindow):
    """Center the window on the query's position; the state is that position, for decoding step by step.

    Example:
        >>> import torch
        >>> LocalM(2).center(torch.zeros(1, 3, 5), torch.tensor([[7]]), None)
        (tensor([[0, 1, 2]]), tensor([3]))
    """

    remembers = True

    @classmethod
    def build(cls, sizes: Sizes) -> LocalM:
        """Return a new focus of this radius."""
        return cls(radius_of("local_m", sizes))

    def center(
        self, query: Float[Tensor, "#B L D"], lengths: Int[Tensor, "#B 1"], state: Int[Tensor, " #B"] | None
    ) -> tuple[Int[Tensor, "#B L"], Int[Tensor, " #B"]]:
        """Return the centers of these queries, and the position of the next one."""
        batch, length = query.shape[:2]
        if state is not None:
            check_ids("LocalM", "state", state, "batch")
        first = torch.zeros(batch, dtype=torch.long, device=query.device) if state is None else state
        return first.unsqueeze(-1) + torch.arange(length, device=query.device), first + length
