"""Following softmaxes through the functions that a model calls, to the values that they are multiplied with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from foci.recording.written_out.followed import (
    Followed,
    as_rows,
    before_joining,
    labels_of,
    matrix_read,
    product_of,
    read_by_heads,
    read_of,
    ruler_of,
    spread,
    unexpanded,
)
from foci.recording.written_out.reads import Delayed, Product, Read, Result, Softmax

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
            product = product_of(func, args, kwargs, operands[index])
            if name in _FACTORS:
                side = index - _FACTORS[name]
                read = matrix_read(followed, side, product)
                if read is None or not isinstance(output, Tensor):
                    return read
                if read.is_first and read.arrange(read.computed).dim() == 3:
                    self._results[output] = Result(read, output.shape[0], output.shape[-1 if side == 0 else -2])
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
        result: Result | None = self._results.get(args[0])
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

    def _follow(self, tensor: Tensor, followed: Followed) -> None:
        """Follow a tensor for as long as the model keeps it."""
        if followed.weights is tensor:  # which would keep it alive: the ruler stands for it
            followed = replace(followed, weights=followed.ruler)
        self._followed[tensor] = followed

    def _known(self, operand: Any) -> Followed | None:
        found: Followed | None = self._followed.get(operand) if isinstance(operand, Tensor) else None
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
                self._follow(output, Followed(logs.softmax, output, logs.ruler))
            else:
                softmax = self._exponents.setdefault(scores, Softmax(place()))
                self._follow(output, Followed(softmax, output, ruler_of(output, None), "exp"))
            return None
        at = _SOFTMAXES[name]
        dim = kwargs.get("dim", kwargs.get("axis", args[at] if at is not None and len(args) > at else None))
        if name == "logsumexp":
            dims = {dim} if isinstance(dim, int) else set(dim)
            if len(dims) == 1:
                ruler = ruler_of(scores, next(iter(dims)))
                self._follow(output, Followed(Softmax(place()), scores, ruler, "logsumexp"))
            return None
        if dim is None:
            dim = -1 if name == "gumbel_softmax" else (0 if output.dim() in (0, 1, 3) else 1)  # as F.softmax takes it
        softmax = Softmax(place(), output.shape[dim])
        if self.keeps_results and name in ("softmax", "_softmax"):
            softmax.scores, softmax.result = scores, output
        stage = "log" if name == "log_softmax" else "weights"
        self._follow(output, Followed(softmax, output, ruler_of(output, dim), stage))
        return softmax if stage == "weights" else None

    def _sum(
        self,
        followed: Followed,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        output: Any,
    ) -> Read | None:
        dims = kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else None))
        axes = {dims} if isinstance(dims, int) else set(dims or ())
        axes = {axis % followed.ruler.dim() for axis in axes}
        if followed.stage == "exp" and len(axes) == 1:
            ruler = ruler_of(followed.weights, next(iter(axes)))
            self._follow(output, Followed(followed.softmax, followed.weights, ruler, "sum"))
        axis = followed.axis
        if followed.product is not None and axis is not None and axis in axes:
            products, factor = followed.product
            again, _ = product_of(func, args, kwargs, args[0])
            product = Product(lambda new: again(products(new)), factor)
            if followed.parted is not None and axis == followed.ruler.dim() - 1:
                return read_by_heads(followed, followed.parted, product)
            return read_of(followed, lambda weights: spread(weights, axis), product)
        return None

    def _einsum(
        self,
        followed: Followed,
        equation: str,
        operands: Sequence[Tensor],
        index: int,
        output: Tensor,
        product: Product,
    ) -> Read | None:
        inputs, result, axis = *labels_of(equation, operands), followed.axis
        mine = inputs[index]
        if axis is None:
            return None
        position = mine[axis]
        if position in result:  # heads were mixed, or rows scaled
            if len(result) == len(mine):
                self._follow(output, Followed(followed.softmax, output, ruler_of(output, result.index(position))))
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
        return read_of(followed, lambda weights: as_rows(weights.permute(order), row), product)

    def _pass_on(
        self,
        name: str,
        func: Callable[..., Any],
        followed: Followed,
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
                self._follow(output, Followed(followed.softmax, output, total.ruler))
        elif name in ("add", "sub", "__rsub__", "subtract"):
            self._combine(followed, operands, output)
        elif name in _MIXTURES and index == 0 and followed.stage == "weights":
            self._mix(followed, _MIXTURES[name], operands[1], output)
        elif name in _SAME_SHAPE:
            self._multiply(followed, name, output, product_of(func, args, kwargs, operands[index]))

    def _reshape(
        self, followed: Followed, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], output: Any
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
                parted = None if func.__name__ in _MOVES else before_joining(followed, part)
                self._follow(piece, Followed(followed.softmax, part, measured, followed.stage, parted))

    def _combine(self, followed: Followed, operands: Sequence[Any], output: Tensor) -> None:
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
            self._follow(output, Followed(followed.softmax, output, followed.ruler))

    def _mix(self, followed: Followed, mixed: int, factors: Tensor, output: Tensor) -> None:
        """Follow weights whose heads, on this axis, were mixed by a product."""
        sizes, axis = list(followed.ruler.shape), followed.axis
        sizes[mixed] = output.shape[mixed]
        if axis is not None and axis != mixed % len(sizes) and [*output.shape] == sizes and factors[0, 0].numel() == 1:
            self._follow(output, Followed(followed.softmax, output, ruler_of(output, axis)))

    def _multiply(self, followed: Followed, name: str, output: Tensor, product: Product) -> None:
        weights = unexpanded(followed.weights)
        if followed.product is not None:  # something is done to products before they are added up
            if output.shape == followed.ruler.shape:
                products, factor = followed.product
                later = Product(lambda new: product.again(products(new)), factor)
                self._follow(output, replace(followed, product=later))
        elif output.shape == followed.ruler.shape and weights.shape == followed.weights.shape:
            self._follow(output, Followed(followed.softmax, output, followed.ruler, followed.stage))
        elif name in ("mul", "multiply") and followed.stage == "weights" and output.dim() == followed.ruler.dim():
            ruler = followed.ruler.expand(output.shape)
            product = product._replace(factor=unexpanded(product.factor))
            self._follow(output, Followed(followed.softmax, weights, ruler, "products", followed.parted, product))
