"""What is found of attention that is written out: softmaxes, and the products of their results with values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


@dataclass(eq=False)
class Softmax:
    """A softmax that was taken.

    Attributes:
        place: the numbers of the modules that ran then.
        columns: the size of its axis, 0 if it was not known then.
        was_read: whether values were multiplied with its result.
        is_partly_read: whether two or more of its columns were left out of that product. One is a sink.
        scores: what it was taken of, for those who change it.
        result: what it returned, likewise.
        edits: those of the calls that read it, chosen at the first of them.
    """

    place: frozenset[int]
    columns: int = 0
    was_read: bool = False
    is_partly_read: bool = False
    scores: Tensor | None = None
    result: Tensor | None = None
    edits: Any = None


@dataclass(eq=False)
class Read:
    """Weights that values were multiplied with.

    Attributes:
        softmax: the softmax that they come from.
        computed: the model's own tensor.
        arrange: returns it, or its gradient, as ``(…, L, S)``.
        heads: how the first axis, where heads are joined with the batch, is parted; None if it is not, or not yet.
        is_first: whether the softmax was not read before.
        product: what values were multiplied with, which is the weights after dropout, and how; None once it is done.
        place: returns what has the axes of that factor as a view with those of the weights, ``(…, L, S)``.
        is_settled: whether it is known how heads and batch are joined.
        later: what waits for that: gives another product.
    """

    softmax: Softmax
    computed: Tensor
    arrange: Callable[[Tensor], Tensor]
    product: Product | None = None
    heads: Heads | None = None
    is_first: bool = True
    place: Callable[[Tensor], Tensor] | None = None
    is_settled: bool = False
    later: Callable[[], Tensor] | None = None

    def read_with(self, weights: Tensor, kept: Tensor | None) -> Any:
        """Return the product with other weights, arranged as those that were computed."""
        if self.product is None:
            raise RuntimeError("this product was let go of")
        again, factor = self.product
        place = self.place or self.arrange
        if factor is not self.computed:  # weights were dropped out
            computed = self.arranged(self.computed)
            weights = weights * torch.where(computed != 0.0, self.parted(place(factor)) / computed, 1.0).detach()
        new = torch.zeros_like(factor)
        self.parted(place(new)).copy_(weights if kept is None else weights * kept)
        return again(new)

    def arranged(self, tensor: Tensor) -> Tensor:
        """Return the weights, or their gradient, as ``(B, H, L, S)`` or ``(…, L, S)``."""
        return self.parted(self.arrange(tensor))

    def parted(self, weights: Tensor) -> Tensor:
        """Return weights ``(B·H, L, S)`` as ``(B, H, L, S)``, where that is known."""
        if self.heads is None:
            return weights
        weights = weights.unflatten(0, self.heads.sizes)
        return weights.transpose(0, 1) if self.heads.come_first else weights


class Product(NamedTuple):
    """A product with values, which can be computed again.

    Attributes:
        again: returns it with something in the place of the factor.
        factor: the weights as they were multiplied.
    """

    again: Callable[[Tensor], Any]
    factor: Tensor


class Delayed(NamedTuple):
    """A product that is computed again when its shape has been changed several times."""

    product: Callable[[], Tensor]
    shapes: tuple[Callable[[Tensor], Any], ...]

    def result(self) -> Any:
        """Return the product with its last shape."""
        found = self.product()
        for shape in self.shapes:
            found = shape(found)
        return found


class Heads(NamedTuple):
    """How batch and heads are joined in one axis: its two sizes, and whether the first of them is that of the heads."""

    sizes: tuple[int, int]
    come_first: bool


@dataclass(eq=False)
class Result:
    """What a read of ``(B·H, L, S)`` gave, from whose next shapes it is told how heads and batch are joined.

    Attributes:
        read: what was read.
        joined: the size of the axis of heads and batch.
        dim: features of a head.
        shapes: the functions that have changed its shape since.
    """

    read: Read
    joined: int
    dim: int
    shapes: tuple[Callable[[Tensor], Any], ...] = ()

    def reshaped(self, shape: Sequence[int]) -> None:
        """Take note of a shape that the result was given."""
        if len(shape) == 4 and shape[0] * shape[1] == self.joined and shape[3] == self.dim and self.read.heads is None:
            self.read.heads = Heads((shape[0], shape[1]), False)
        heads = shape[-1] // self.dim if self.dim and shape[-1] % self.dim == 0 else 1
        if len(shape) > 1 and heads > 1 and self.joined % heads == 0:  # the heads stand side by side again
            sizes = (self.joined // heads, heads) if self.read.heads is None else self.read.heads.sizes
            if heads in sizes:
                self.read.heads = Heads(sizes, sizes[1] != heads)
                self.read.is_settled = True
