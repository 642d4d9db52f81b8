"""Tensors of weights on their way to the values: their axis of the softmax, and the products that complete a read."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from foci.recording.written_out.reads import Product, Read, Softmax


@dataclass(eq=False)
class Followed:
    """A tensor of weights, or what becomes one.

    Attributes:
        softmax: where it comes from.
        weights: the weights before dropout, with the axes of the tensor.
        parted: the same (B, H, L, …) before heads were joined with the batch, None if they were not.
        product: of "products", how they are computed again, and with what in the place of which factor.
        ruler: has the shape of the tensor and no numbers; its only stride is that of the softmax axis.
        stage: "weights"; "products" with values, whose sum is missing; before that "exp" and its "sum", "logsumexp"
            and "log".
    """

    softmax: Softmax
    weights: Tensor
    ruler: Tensor
    stage: str = "weights"
    parted: Tensor | None = None
    product: Product | None = None

    @property
    def axis(self) -> int | None:
        """The axis of the softmax, None if a change of shape has mixed it with others."""
        sizes = self.ruler.shape
        strided = [axis for axis, stride in enumerate(self.ruler.stride()) if stride and sizes[axis] > 1]
        if strided:
            return strided[0] if len(strided) == 1 else None
        single = [axis for axis, size in enumerate(sizes) if size == 1]  # a softmax over one position
        return single[-1] if single else None


def product_of(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], factor: Tensor) -> Product:
    """Return how a call is repeated with something else in the place of this argument."""

    def again(new: Tensor) -> Any:
        def put(value: Any) -> Any:
            if isinstance(value, list | tuple):  # of einsum
                return [put(one) for one in value]
            return new if value is factor else value

        return func(*map(put, args), **{name: put(value) for name, value in kwargs.items()})

    return Product(again, factor)


def matrix_read(followed: Followed, side: int, product: Product) -> Read | None:
    """Return the read of a product of matrices, if it adds up values over the axis of the softmax."""
    axis, dims = followed.axis, followed.ruler.dim()
    if axis is None or side not in (0, 1):
        return None
    if side == 0 and axis == dims - 1:
        if followed.parted is not None:
            return read_by_heads(followed, followed.parted, product)
        return read_of(followed, lambda weights: as_rows(weights, dims == 1), product)
    if side == 1 and dims > 1 and axis == dims - 2:
        return read_of(followed, lambda weights: weights.mT, product)
    return read_of(followed, lambda weights: as_rows(weights, True), product) if side == 1 and dims == 1 else None


def before_joining(followed: Followed, reshaped: Tensor) -> Tensor | None:
    """Return the weights as they were before this change of shape joined heads and batch: (B, H, L, …).

    The columns may be joined too, as levels and points of deformable attention, and an axis of size 1 follow the first.
    """
    before = followed.weights if followed.parted is None else followed.parted
    if before.dim() < 4 or reshaped.dim() not in (3, 4) or (reshaped.dim() == 4 and reshaped.shape[1] != 1):
        return None
    joined = before.shape[0] * before.shape[1], before.shape[2], before.shape[3:].numel()
    return before if joined == (reshaped.shape[0], *reshaped.shape[-2:]) else None


def read_by_heads(followed: Followed, parted: Tensor, product: Product) -> Read:
    """Return a read of weights (B, H, L, …) whose heads were joined with the batch since."""
    sizes = parted.shape[:2]
    read = read_of(replace(followed, weights=parted), lambda weights: weights.flatten(3), product)
    read.place = lambda factor: (factor.squeeze(1) if factor.dim() == 4 else factor).unflatten(0, sizes)
    return read


def read_of(followed: Followed, arrange: Callable[[Tensor], Tensor], product: Product) -> Read:
    """Return a read of a softmax."""
    is_first = not followed.softmax.was_read
    followed.softmax.was_read = True
    if is_first:
        followed.softmax.is_partly_read = followed.axis is not None and (
            followed.ruler.shape[followed.axis] < followed.softmax.columns - 1
        )
    return Read(followed.softmax, followed.weights, arrange, product, is_first=is_first)


def ruler_of(tensor: Tensor, axis: int | None) -> Tensor:
    """Return a tensor without numbers and of the same shape, whose only stride is that of the axis."""
    strides = [0] * tensor.dim()
    if axis is not None:
        strides[axis] = 1
    return torch.empty_strided(tensor.shape, strides, device="meta")


def unexpanded(weights: Tensor) -> Tensor:
    """Return weights that were repeated along an axis, to be multiplied with values of this shape, once."""
    for axis, (stride, size) in enumerate(zip(weights.stride(), weights.shape)):
        if stride == 0 and size > 1:
            weights = weights.narrow(axis, 0, 1)
    return weights


def spread(weights: Tensor, axis: int) -> Tensor:
    """Return weights that values were multiplied with one by one, as ``(…, L, S)``: axes of size 1 are the values'."""
    moved = weights.movedim(axis, -1)
    return moved.squeeze(-2) if moved.dim() > 3 and moved.shape[-2] == 1 else as_rows(moved, moved.dim() == 1)


def as_rows(weights: Tensor, row: bool) -> Tensor:
    """Return the weights, with an axis of one query where they have none."""
    return weights.unsqueeze(-2) if row else weights


def labels_of(equation: str, operands: Sequence[Tensor]) -> tuple[list[list[str]], list[str]]:
    """Return the label of each axis of the operands and of the result of an einsum, axes of an ellipsis included."""
    left, _, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    most = max((operand.dim() - len(term) + 3 for term, operand in zip(terms, operands) if "..." in term), default=0)
    inputs = []
    for term, operand in zip(terms, operands):
        before, dots, after = term.partition("...")
        count = operand.dim() - len(before) - len(after) if dots else 0
        inputs.append([*before, *free[most - count : most], *after])
    if "->" not in equation:
        every = [label for labels in inputs for label in labels]
        result = sorted(label for label in set(every) if every.count(label) == 1)
        return inputs, [*free[:most], *(label for label in result if label not in free[:most])]
    before, dots, after = right.partition("...")
    return inputs, [*before, *(free[:most] if dots else ()), *after]
