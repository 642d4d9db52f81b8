"""Vectors of unit mean square, and the square of ReLU: as torch computes them, with fewer passes over memory.

    unit_mean_square(x) = x / √(mean(x²) + ε)          squared_relu(x) = max(0, x)²

Composed of torch's operations, forward and backward pass read and write their numbers about three times as often as
they need to, which is what they cost. Here the backward passes are written out.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from foci.tracing import is_traced, is_watched

EPSILON = 1e-6


def unit_mean_square(vectors: Float[Tensor, "... K"]) -> Float[Tensor, "... K"]:
    """Return the vectors divided by the root of the mean of their squares.

    Example:
        >>> unit_mean_square(torch.tensor([3.0, -1.0])).square().mean().round(decimals=4)
        tensor(1.)
    """
    if is_traced() or is_watched(vectors):
        return F.rms_norm(vectors, vectors.shape[-1:], eps=EPSILON)
    unit: Tensor = _UnitMeanSquare.apply(vectors)[0]  # type: ignore[no-untyped-call]
    return unit


def squared_relu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return max(0, x)².

    Example:
        >>> squared_relu(torch.tensor([3.0, -1.0]))
        tensor([9., 0.])
    """
    if is_traced() or is_watched(x):
        return F.relu(x).square()
    squared: Tensor = _SquaredReLU.apply(x)[0]  # type: ignore[no-untyped-call]
    return squared


class _UnitMeanSquare(torch.autograd.Function):
    """Return the unit vectors and their scale.

    Autograd takes what is saved for a constant unless it is an input or an output, so the scale is an output too: its
    gradient, which only second derivatives have, is passed on.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(x.dtype, torch.float32)
        scale = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
        scale = scale.square_().div_(x.shape[-1]).add_(EPSILON).rsqrt_().to(x.dtype)
        unit: Tensor = x * scale
        ctx.save_for_backward(unit, scale)
        ctx.set_materialize_grads(False)
        return unit, scale

    @staticmethod
    def backward(ctx: Any, of_unit: Tensor | None, of_scale: Tensor | None) -> Tensor | None:
        unit, scale = ctx.saved_tensors
        found: Tensor | None = None
        if of_unit is not None:
            along = (of_unit * unit).mean(dim=-1, keepdim=True)
            found = torch.addcmul(of_unit, unit, along, value=-1) * scale
        if of_scale is not None:
            change: Tensor = unit * (of_scale * scale.square() / -unit.shape[-1])
            found = change if found is None else found + change
        return found


class _SquaredReLU(torch.autograd.Function):
    """Return the square and the positive part, which is saved: an output for the same reason as the scale above."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        positive = F.relu(x)
        ctx.save_for_backward(positive)
        ctx.set_materialize_grads(False)
        return positive * positive, positive

    @staticmethod
    def backward(ctx: Any, of_square: Tensor | None, of_positive: Tensor | None) -> Tensor | None:
        (positive,) = ctx.saved_tensors
        found: Tensor | None = None
        if of_square is not None:
            found = 2 * (of_square * positive)
        if of_positive is not None:
            change: Tensor = of_positive * (positive > 0)
            found = change if found is None else found + change
        return found
