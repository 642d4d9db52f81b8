"""Pointing: attention over positions summed into a distribution over words."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from foci.checks import check_shape
from foci.errors import ShapeError


def sum_occurrences(
    weights: Float[Tensor, "B S"], tokens: Int[Tensor, "B S"], candidates: Int[Tensor, "B K"]
) -> Float[Tensor, "B K"]:
    """Return the weight of each candidate: the sum over the positions at which it occurs (Cui 2017, eq. 11).

    ``tokens`` holds the word id at each position, ``candidates`` the ids to choose among. A negative
    candidate is padding and gets 0, and so does one that does not occur.

    Example:
        >>> weights = torch.tensor([[0.5, 0.25, 0.25]])
        >>> sum_occurrences(weights, torch.tensor([[7, 8, 7]]), torch.tensor([[7, 9, -1]]))
        tensor([[0.7500, 0.0000, 0.0000]])
    """
    check_shape("sum_occurrences", "weights", weights, "batch", "position")
    _check_ids("tokens", tokens, weights, weights.shape[1])
    _check_ids("candidates", candidates, weights, "candidate")
    wanted = candidates.unsqueeze(-1)
    stands_here = (tokens.unsqueeze(1) == wanted) & (wanted >= 0)
    return torch.where(stands_here, weights.unsqueeze(1), 0.0).sum(dim=-1)


def _check_ids(name: str, ids: Tensor, weights: Tensor, size: int | str) -> None:
    batch = weights.shape[0]
    if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.dtype == torch.bool:
        kind = ids.dtype if isinstance(ids, Tensor) else type(ids).__name__
        raise ShapeError(f"sum_occurrences: {name} is {kind}, expected a tensor of whole numbers (word ids).")
    if ids.dim() != 2 or ids.shape[0] != batch or (not isinstance(size, str) and ids.shape[1] != size):
        raise ShapeError(
            f"sum_occurrences: {name} has shape {tuple(ids.shape)}, expected ({batch}, {size}) to fit the "
            f"weights {tuple(weights.shape)}. Pad short rows, candidates with -1."
        )
    if ids.device != weights.device:
        raise ShapeError(
            f"sum_occurrences: {name} is on {ids.device}, but weights is on {weights.device}. "
            f"Move it with {name}.to(weights.device)."
        )
