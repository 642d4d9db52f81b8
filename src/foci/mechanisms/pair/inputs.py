"""What every mechanism of two sequences asks of its inputs."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from foci.errors import check_shape, check_together, check_valid


def valid_cells(
    owner: str,
    left: Float[Tensor, "B S D"],
    right: Float[Tensor, "B R D"],
    left_mask: Bool[Tensor, "B S"] | None,
    right_mask: Bool[Tensor, "B R"] | None,
    *,
    size: int | None,
) -> tuple[Bool[Tensor, "B S"], Bool[Tensor, "B R"]]:
    """Which cells of both sequences exist (all, where no mask came), or raise what is wrong with them."""
    check_shape(owner, "left", left, "batch", "position", "size" if size is None else size)
    fix = "Left and right need one batch and one size: project one of them."
    check_shape(owner, "right", right, left.shape[0], "position", left.shape[2], fix=fix)
    check_together(owner, left=left, right=right)
    return _valid(owner, "left_mask", left_mask, left), _valid(owner, "right_mask", right_mask, right)


def _valid(owner: str, name: str, mask: Tensor | None, cells: Tensor) -> Tensor:
    if mask is None:
        return torch.ones(cells.shape[:2], dtype=torch.bool, device=cells.device)
    check_valid(owner, name, mask, cells.shape[0], cells.shape[1], cells.device)
    return mask
