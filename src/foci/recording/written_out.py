"""Attention that a model's own code writes out: a softmax whose result is multiplied with values, in any spelling.

    softmax(query @ key.mT) @ values            F.softmax, torch.softmax, nn.Softmax, exp(scores) / exp(scores).sum(…),
                                                exp(scores − logsumexp(scores))
    einsum("bhqk,bhkd->bhqd", weights, values)  matmul, bmm, einsum, a product and its sum

`WrittenOut` is told of each function of torch that a model calls. It follows the result of a softmax through what
models do to weights (masks, dropout, the difference of two, other shapes and dtypes) to the product that adds up values
over the axis of the softmax. Nothing is computed again: the weights are those that the model computed.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_SOFTMAXES = {"softmax": 1, "_softmax": 1, "gumbel_softmax": 4, "log_softmax": 1, "logsumexp": 1, "exp": None}
"""Functions that begin a softmax -> the place of the axis among their arguments."""
_SHAPES = {
    "__get__", "__getitem__", "chunk", "expand", "expand_as", "flatten", "movedim", "moveaxis", "narrow", "permute",
    "reshape", "reshape_as", "split", "squeeze", "swapaxes", "swapdims", "t", "tensor_split", "transpose", "unbind",
    "unflatten", "unsqueeze", "view", "view_as",
}  # fmt: skip
_MOVES = {"movedim", "moveaxis", "permute", "swapaxes", "swapdims", "t", "transpose"}
"""Of these those that join no axes."""
_SAME_SHAPE = {
    "bfloat16", "clamp", "clamp_min", "clone", "contiguous", "detach", "div", "div_", "double", "float", "half",
    "masked_fill", "masked_fill_", "mul", "mul_", "multiply", "nan_to_num", "nan_to_num_", "to", "true_divide", "type",
    "type_as", "where",
}  # fmt: skip
_FACTORS = {"addbmm": 1, "addmm": 1, "baddbmm": 1, "bmm": 0, "matmul": 0, "mm": 0, "mv": 0}
"""Products of matrices -> the place of the first factor among their arguments."""
_MIXTURES = {"linear": -1, "conv2d": 1}
"""Products that mix heads, where these lie on this axis: talking heads."""


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
class _Result:
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


@dataclass(eq=False)
class _Followed:
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


class WrittenOut:
    """Follows the softmaxes of one thread to the values that they are multiplied with.

    Attributes:
        keeps_results: whether a `Softmax` has its scores and its result.
    """

    def __init__(self) -> None:
        self.keeps_results = False
        self._followed: Any = WeakTensorKeyDictionary()
        self._exponents: Any = WeakTensorKeyDictionary()  # scores whose exponentials were taken -> their softmax
        self._results: Any = WeakTensorKeyDictionary()

    def see(
        self,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        output: Any,
        place: Callable[[], frozenset[int]],
    ) -> Softmax | Read | Delayed | None:
        """Follow a function that was called; return the softmax that it took, or the attention that it completed.

        Where a `Read` has something that waited for how heads and batch are joined, return that as soon as it is known.
        """
        name = func.__name__.removeprefix("special_").removeprefix("linalg_")
        if name in _SOFTMAXES:
            return self._begin(name, args, kwargs, output, place)
        if self._results and args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
            result = self._follow_result(func, args, kwargs, output)
            if result is not None:
                return result
        if not self._followed:
            return None
        operands = [*args, *kwargs.values()]
        if name == "einsum" and len(operands) > 1:
            operands = [*operands[1]] if isinstance(operands[1], list | tuple) else operands[1:]
        known = ((number, self._known(operand)) for number, operand in enumerate(operands))
        index, followed = next(((number, found) for number, found in known if found is not None), (0, None))
        if followed is None:
            return None
        if name == "sum":
            return self._sum(followed, func, args, kwargs, output)
        if followed.stage == "weights":
            product = _product(func, args, kwargs, operands[index])
            if name in _FACTORS:
                side = index - _FACTORS[name]
                read = _matrix_product(followed, side, product)
                if read is None or not isinstance(output, Tensor):
                    return read
                if read.is_first and read.arrange(read.computed).dim() == 3:
                    self._results[output] = _Result(read, output.shape[0], output.shape[-1 if side == 0 else -2])
                return read
            if name == "einsum":
                return self._einsum(followed, args[0], operands, index, output, product)
        self._pass_on(name, func, followed, operands, index, args, kwargs, output)
        return None

    def replaced(self, output: Any, new: Any) -> Any:
        """Return what was put in the place of a product, and follow it as the product."""
        if output in self._results:
            self._results[new] = self._results[output]
        return new

    def waits(self, output: Any) -> bool:
        """Return whether this product joins heads and batch, in a way that will be known by its next shapes."""
        return output in self._results and not self._results[output].read.is_settled

    def forget(self) -> None:
        """Follow nothing from before any more."""
        self._followed.clear()
        self._exponents.clear()
        self._results.clear()

    def _follow_result(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], output: Tensor
    ) -> Delayed | None:
        result: _Result | None = self._results.get(args[0])
        if result is None or (func.__name__ not in _SHAPES and func.__name__ != "contiguous"):
            return None
        result = replace(result, shapes=(*result.shapes, lambda given: func(given, *args[1:], **kwargs)))
        result.reshaped(output.shape)
        self._results[output] = result
        later, read = result.read.later, result.read
        if later is None or not read.is_settled:
            return None
        read.later = None
        return Delayed(later, result.shapes)

    def _follow(self, tensor: Tensor, followed: _Followed) -> None:
        """Follow a tensor for as long as the model keeps it."""
        if followed.weights is tensor:  # which would keep it alive: the ruler stands for it
            followed = replace(followed, weights=followed.ruler)
        self._followed[tensor] = followed

    def _known(self, operand: Any) -> _Followed | None:
        found: _Followed | None = self._followed.get(operand) if isinstance(operand, Tensor) else None
        return found if found is None or found.weights is not found.ruler else replace(found, weights=operand)

    def _begin(
        self,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        output: Any,
        place: Callable[[], frozenset[int]],
    ) -> Softmax | None:
        scores = args[0] if args else kwargs.get("input")
        if not isinstance(scores, Tensor) or not isinstance(output, Tensor) or output.is_nested or output.dim() == 0:
            return None
        logs = self._known(scores)
        if name == "exp":
            if logs is not None and logs.stage == "log":
                self._follow(output, _Followed(logs.softmax, output, logs.ruler))
            else:
                softmax = self._exponents.setdefault(scores, Softmax(place()))
                self._follow(output, _Followed(softmax, output, _ruler(output, None), "exp"))
            return None
        at = _SOFTMAXES[name]
        dim = kwargs.get("dim", kwargs.get("axis", args[at] if at is not None and len(args) > at else None))
        if name == "logsumexp":
            dims = {dim} if isinstance(dim, int) else set(dim)
            if len(dims) == 1:
                ruler = _ruler(scores, next(iter(dims)))
                self._follow(output, _Followed(Softmax(place()), scores, ruler, "logsumexp"))
            return None
        if dim is None:
            dim = -1 if name == "gumbel_softmax" else (0 if output.dim() in (0, 1, 3) else 1)  # as F.softmax takes it
        softmax = Softmax(place(), output.shape[dim])
        if self.keeps_results and name in ("softmax", "_softmax"):
            softmax.scores, softmax.result = scores, output
        stage = "log" if name == "log_softmax" else "weights"
        self._follow(output, _Followed(softmax, output, _ruler(output, dim), stage))
        return softmax if stage == "weights" else None

    def _sum(
        self,
        followed: _Followed,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        output: Any,
    ) -> Read | None:
        dims = kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else None))
        axes = {dims} if isinstance(dims, int) else set(dims or ())
        axes = {axis % followed.ruler.dim() for axis in axes}
        if followed.stage == "exp" and len(axes) == 1:
            ruler = _ruler(followed.weights, next(iter(axes)))
            self._follow(output, _Followed(followed.softmax, followed.weights, ruler, "sum"))
        axis = followed.axis
        if followed.product is not None and axis is not None and axis in axes:
            products, factor = followed.product
            again, _ = _product(func, args, kwargs, args[0])
            product = Product(lambda new: again(products(new)), factor)
            if followed.parted is not None and axis == followed.ruler.dim() - 1:
                return _read_by_heads(followed, followed.parted, product)
            return _read(followed, lambda weights: _spread(weights, axis), product)
        return None

    def _einsum(
        self,
        followed: _Followed,
        equation: str,
        operands: Sequence[Tensor],
        index: int,
        output: Tensor,
        product: Product,
    ) -> Read | None:
        inputs, result, axis = *_labels(equation, operands), followed.axis
        mine = inputs[index]
        if axis is None:
            return None
        position = mine[axis]
        if position in result:  # heads were mixed, or rows scaled
            if len(result) == len(mine):
                self._follow(output, _Followed(followed.softmax, output, _ruler(output, result.index(position))))
            return None
        others = {label for number, labels in enumerate(inputs) if number != index for label in labels}
        if position not in others:
            return None
        shared = [label for label in mine if label in others and label != position]
        queries = [label for label in mine if label not in others and label in result]
        order = [mine.index(label) for label in (*shared, *queries, position)]
        if len(order) != len(mine):
            return None
        row = not queries
        return _read(followed, lambda weights: _rows(weights.permute(order), row), product)

    def _pass_on(
        self,
        name: str,
        func: Callable[..., Any],
        followed: _Followed,
        operands: Sequence[Any],
        index: int,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        output: Any,
    ) -> None:
        """Follow the result of a function that leaves weights what they are, or brings them nearer to the values."""
        if name in _SHAPES and index == 0:
            self._reshape(followed, func, args, kwargs, output)
        elif not isinstance(output, Tensor) or output.is_nested:
            return
        elif "dropout" in name and output.shape == followed.ruler.shape:
            self._follow(output, replace(followed))  # the weights are those before it
        elif name in ("div", "div_", "true_divide") and followed.stage == "exp":
            total = self._known(operands[1])
            if index == 0 and total is not None and total.stage == "sum" and total.softmax is followed.softmax:
                self._follow(output, _Followed(followed.softmax, output, total.ruler))
        elif name in ("add", "sub", "__rsub__", "subtract"):
            self._combine(followed, operands, output)
        elif name in _MIXTURES and index == 0 and followed.stage == "weights":
            self._mix(followed, _MIXTURES[name], operands[1], output)
        elif name in _SAME_SHAPE:
            self._multiply(followed, name, output, _product(func, args, kwargs, operands[index]))

    def _reshape(
        self, followed: _Followed, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], output: Any
    ) -> None:
        if followed.stage in ("sum", "logsumexp"):  # its axis is that of the weights, whatever becomes of the sum
            if isinstance(output, Tensor):
                self._follow(output, followed)
            return
        if followed.stage == "products":
            return
        try:
            ruler = func(followed.ruler, *args[1:], **kwargs)
        except (RuntimeError, TypeError, IndexError, NotImplementedError):
            return  # not a view: the axis is mixed with others, or its numbers are chosen by others
        whole = followed.weights is args[0]
        weights = output if whole else func(followed.weights, *args[1:], **kwargs)
        pieces = zip(output, ruler, weights) if isinstance(output, list | tuple) else [(output, ruler, weights)]
        for piece, measured, part in pieces:
            if isinstance(piece, Tensor):
                parted = None if func.__name__ in _MOVES else _parted(followed, part)
                self._follow(piece, _Followed(followed.softmax, part, measured, followed.stage, parted))

    def _combine(self, followed: _Followed, operands: Sequence[Any], output: Tensor) -> None:
        """Follow the difference of two weights or of logarithms, and a sum to which a small number was added."""
        both = [self._known(operand) for operand in operands[:2]]
        if followed.stage == "sum":
            self._follow(output, followed)
        elif followed.stage == "logsumexp":
            if output.shape == followed.ruler.shape and operands[0] is followed.weights:
                self._follow(output, replace(followed, stage="log"))
        elif (
            all(other is not None and other.stage == "weights" for other in both)
            and followed.ruler.shape == output.shape
        ):
            for other in both:
                if other is not None and other.softmax is not followed.softmax:
                    other.softmax.was_read = True
            self._follow(output, _Followed(followed.softmax, output, followed.ruler))

    def _mix(self, followed: _Followed, mixed: int, factors: Tensor, output: Tensor) -> None:
        """Follow weights whose heads, on this axis, were mixed by a product."""
        sizes, axis = list(followed.ruler.shape), followed.axis
        sizes[mixed] = output.shape[mixed]
        if axis is not None and axis != mixed % len(sizes) and [*output.shape] == sizes and factors[0, 0].numel() == 1:
            self._follow(output, _Followed(followed.softmax, output, _ruler(output, axis)))

    def _multiply(self, followed: _Followed, name: str, output: Tensor, product: Product) -> None:
        weights = _unexpanded(followed.weights)
        if followed.product is not None:  # something is done to products before they are added up
            if output.shape == followed.ruler.shape:
                products, factor = followed.product
                later = Product(lambda new: product.again(products(new)), factor)
                self._follow(output, replace(followed, product=later))
        elif output.shape == followed.ruler.shape and weights.shape == followed.weights.shape:
            self._follow(output, _Followed(followed.softmax, output, followed.ruler, followed.stage))
        elif name in ("mul", "multiply") and followed.stage == "weights" and output.dim() == followed.ruler.dim():
            ruler = followed.ruler.expand(output.shape)
            product = product._replace(factor=_unexpanded(product.factor))
            self._follow(output, _Followed(followed.softmax, weights, ruler, "products", followed.parted, product))


def _product(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], factor: Tensor) -> Product:
    """Return how a call is repeated with something else in the place of this argument."""

    def again(new: Tensor) -> Any:
        def put(value: Any) -> Any:
            if isinstance(value, list | tuple):  # of einsum
                return [put(one) for one in value]
            return new if value is factor else value

        return func(*map(put, args), **{name: put(value) for name, value in kwargs.items()})

    return Product(again, factor)


def _matrix_product(followed: _Followed, side: int, product: Product) -> Read | None:
    """Return the read of a product of matrices, if it adds up values over the axis of the softmax."""
    axis, dims = followed.axis, followed.ruler.dim()
    if axis is None or side not in (0, 1):
        return None
    if side == 0 and axis == dims - 1:
        if followed.parted is not None:
            return _read_by_heads(followed, followed.parted, product)
        return _read(followed, lambda weights: _rows(weights, dims == 1), product)
    if side == 1 and dims > 1 and axis == dims - 2:
        return _read(followed, lambda weights: weights.mT, product)
    return _read(followed, lambda weights: _rows(weights, True), product) if side == 1 and dims == 1 else None


def _parted(followed: _Followed, reshaped: Tensor) -> Tensor | None:
    """Return the weights as they were before this change of shape joined heads and batch: (B, H, L, …).

    The columns may be joined too, as levels and points of deformable attention, and an axis of size 1 follow the first.
    """
    before = followed.weights if followed.parted is None else followed.parted
    if before.dim() < 4 or reshaped.dim() not in (3, 4) or (reshaped.dim() == 4 and reshaped.shape[1] != 1):
        return None
    joined = before.shape[0] * before.shape[1], before.shape[2], before.shape[3:].numel()
    return before if joined == (reshaped.shape[0], *reshaped.shape[-2:]) else None


def _read_by_heads(followed: _Followed, parted: Tensor, product: Product) -> Read:
    """Return a read of weights (B, H, L, …) whose heads were joined with the batch since."""
    sizes = parted.shape[:2]
    read = _read(replace(followed, weights=parted), lambda weights: weights.flatten(3), product)
    read.place = lambda factor: (factor.squeeze(1) if factor.dim() == 4 else factor).unflatten(0, sizes)
    return read


def _read(followed: _Followed, arrange: Callable[[Tensor], Tensor], product: Product) -> Read:
    """Return a read of a softmax."""
    is_first = not followed.softmax.was_read
    followed.softmax.was_read = True
    if is_first:
        followed.softmax.is_partly_read = followed.axis is not None and (
            followed.ruler.shape[followed.axis] < followed.softmax.columns - 1
        )
    return Read(followed.softmax, followed.weights, arrange, product, is_first=is_first)


def _ruler(tensor: Tensor, axis: int | None) -> Tensor:
    """Return a tensor without numbers and of the same shape, whose only stride is that of the axis."""
    strides = [0] * tensor.dim()
    if axis is not None:
        strides[axis] = 1
    return torch.empty_strided(tensor.shape, strides, device="meta")


def _unexpanded(weights: Tensor) -> Tensor:
    """Return weights that were repeated along an axis, to be multiplied with values of this shape, once."""
    for axis, (stride, size) in enumerate(zip(weights.stride(), weights.shape)):
        if stride == 0 and size > 1:
            weights = weights.narrow(axis, 0, 1)
    return weights


def _spread(weights: Tensor, axis: int) -> Tensor:
    """Return weights that values were multiplied with one by one, as ``(…, L, S)``: axes of size 1 are the values'."""
    moved = weights.movedim(axis, -1)
    return moved.squeeze(-2) if moved.dim() > 3 and moved.shape[-2] == 1 else _rows(moved, moved.dim() == 1)


def _rows(weights: Tensor, row: bool) -> Tensor:
    """Return the weights, with an axis of one query where they have none."""
    return weights.unsqueeze(-2) if row else weights


def _labels(equation: str, operands: Sequence[Tensor]) -> tuple[list[list[str]], list[str]]:
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
