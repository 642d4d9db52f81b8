"""The checks of the inputs of every mechanism over two sequences."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from foci.checks import check_shape, check_together, check_valid
from foci.masks import clear_unreadable


def check_pair(
    owner: str,
    left: Float[Tensor, "B S D"],
    right: Float[Tensor, "B R D"],
    left_mask: Bool[Tensor, "B S"] | None,
    right_mask: Bool[Tensor, "B R"] | None,
    *,
    size: int | None,
) -> tuple[Tensor, Tensor, Bool[Tensor, "B S"], Bool[Tensor, "B R"]]:
    """Return both sequences, zeros where they are padded, and which of their positions exist (all without a mask).

    Raises:
        ShapeError: if a sequence or a mask has the wrong shape, dtype or device.
    """
    check_shape(owner, "left", left, "batch", "position", "size" if size is None else size)
    fix = "Left and right need one batch and one size: project one of them."
    check_shape(owner, "right", right, left.shape[0], "position", left.shape[2], fix=fix)
    check_together(owner, left=left, right=right)
    left, left_valid = _existing(owner, "left_mask", left_mask, left)
    right, right_valid = _existing(owner, "right_mask", right_mask, right)
    return left, right, left_valid, right_valid


def _existing(owner: str, name: str, mask: Tensor | None, values: Tensor) -> tuple[Tensor, Tensor]:
    if mask is None:
        return values, torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
    check_valid(owner, name, mask, values.shape[0], values.shape[1], values.device)
    return clear_unreadable(values, mask.unsqueeze(1)), mask
