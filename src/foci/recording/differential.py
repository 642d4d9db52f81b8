"""Differential attention, which reads with one softmax minus a multiple of another; the difference has signs.

    (softmax(q₁ k₁ᵀ) − λ softmax(q₂ k₂ᵀ)) v        λ = exp(λ_q1 · λ_k1) − exp(λ_q2 · λ_k2) + λ_init

Models read values with both and subtract what was read, so that the difference is nowhere among their numbers. Such a
module is known by its parameters: ``lambda_q1``, ``lambda_k1``, ``lambda_q2``, ``lambda_k2`` and the number
``lambda_init``. The two softmaxes are two calls, or the halves of the heads of one, as in DiffLlama.

Paper: Differential Transformer (Ye, Dong, Xia, Sun, Zhu, Huang and Wei, 2024), equations 1 and 2
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from foci.tracing import exportable
from foci.weights import Weights
from foci.weights.sources import ByWeights, Rows, Source

_PARAMETERS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")


@exportable
@dataclass(eq=False)
class Difference(ByWeights):
    """The weights of the first source minus ``factor`` times those of the second."""

    parts = ("factor",)
    held = "two softmaxes"
    factor: Tensor
    of: list[Source]

    @property
    def shape(self) -> torch.Size:
        """The shape of the weights."""
        return self.of[0].shape

    def rows(self, index: Rows) -> Tensor:
        """Return the weights of these rows."""
        first, second = (source.rows(index) for source in self.of)
        return first - self.factor * second

    def entropy(self, index: Rows) -> Tensor:
        """Return NaN: numbers with signs have no entropy."""
        return torch.full_like(self.of[0].mass(index, torch.ones((), dtype=torch.bool)), torch.nan)

    def heads(self, index: int | slice | Tensor) -> Difference:
        """Return the source of some heads only."""
        return replace(self, of=[source.heads(index) for source in self.of], versions=None)


def factor_of(module: nn.Module) -> Tensor | None:
    """Return λ of a module that subtracts, None of any other."""
    if not all(name in module._parameters for name in _PARAMETERS) or not hasattr(module, "lambda_init"):
        return None
    q1, k1, q2, k2 = (getattr(module, name).float() for name in _PARAMETERS)
    factor: Tensor = torch.exp((q1 * k1).sum()) - torch.exp((q2 * k2).sum()) + float(module.lambda_init)  # type: ignore[arg-type]
    return factor


def distinct(calls: list[Weights]) -> list[int]:
    """Return which calls differ from all before them: the values may be read in halves, with the same weights."""
    found: list[int] = []
    for number, call in enumerate(calls):
        if not any(_equal(call, calls[other]) for other in found):
            found.append(number)
    return found


def can_subtract(calls: list[Weights]) -> bool:
    """Return whether these are the softmaxes of a difference: two of one shape, or one with an even number of heads."""
    if len(calls) == 1:
        return len(calls[0].shape) == 4 and calls[0].shape[1] % 2 == 0
    return len(calls) == 2 and calls[0].shape == calls[1].shape


def difference(calls: list[Weights], factor: Tensor) -> Weights:
    """Return what a module reads with, whose softmaxes are these."""
    if len(calls) == 1:
        half = calls[0].shape[1] // 2
        calls = [calls[0].heads(slice(0, half)), calls[0].heads(slice(half, 2 * half))]
    return Weights(Difference(factor.to(calls[0].dtype), [call.source for call in calls]))


def _equal(one: Weights, other: Weights) -> bool:
    pairs = zip(tree_leaves(one), tree_leaves(other), strict=False)
    return one.shape == other.shape and all(
        torch.equal(first, second) if isinstance(first, Tensor) and isinstance(second, Tensor) else first == second
        for first, second in pairs
    )
