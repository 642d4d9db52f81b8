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
    unit: Tensor = _UnitMeanSquare.apply(vectors)  # type: ignore[no-untyped-call]
    return unit


def squared_relu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return max(0, x)².

    Example:
        >>> squared_relu(torch.tensor([3.0, -1.0]))
        tensor([9., 0.])
    """
    if is_traced() or is_watched(x):
        return F.relu(x).square()
    squared: Tensor = _SquaredReLU.apply(x)  # type: ignore[no-untyped-call]
    return squared


class _UnitMeanSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        scale = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
        scale = scale.square_().div_(x.shape[-1]).add_(EPSILON).rsqrt_().to(x.dtype)
        unit: Tensor = x * scale
        ctx.save_for_backward(unit, scale)
        return unit

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        unit, scale = ctx.saved_tensors
        (gradient,) = gradients
        along = (gradient * unit).mean(dim=-1, keepdim=True)
        across: Tensor = torch.addcmul(gradient, unit, along, value=-1) * scale
        return across


class _SquaredReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = F.relu(x)
        ctx.save_for_backward(positive)
        squared: Tensor = positive * positive
        return squared

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        slope: Tensor = 2 * (gradients[0] * positive)
        return slope
