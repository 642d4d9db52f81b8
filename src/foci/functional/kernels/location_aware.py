"""Steps of location-aware attention in one call, forward and backward.

    f_t = F ∗ α_{t−1},   e_tj = vᵀ tanh(q_t + k_j + U f_tj),   α_t = normalize(β e_t),   output_t = Σ_j α_tj value_j

``location_aware.cpp`` computes it for float32 on a CPU, with a softmax or with sigmoids divided by their sum; it
reads the value or leaves that to the caller. The forward keeps f, and the backward computes the tanh again. In other
dtypes, on other devices, with other normalizers, without a compiler, and where something other than eager autograd
watches, `foci.functional.stepwise` runs one step after the other. tanh has an absolute error of about 1e-7.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from foci.errors import ShapeError
from foci.functional.kernels import source_gradients
from foci.functional.kernels.build import Kernel, fixed_numbers
from foci.functional.kernels.gradients import differentiate
from foci.tracing import is_traced, is_watched

_THREAD_CELLS = 1 << 16
"""Numbers tanh is taken of that make one more thread worth waking."""

Plain = Callable[..., Tensor]
"""The same arguments without the options, the same result, one step after the other."""


class LocationOptions(NamedTuple):
    """How scores become weights: β, and whether sigmoids take the place of the softmax's exponentials."""

    sharpening: float = 1.0
    smoothing: bool = False


def location_aware(
    previous: Float[Tensor, "B S"],
    query: Float[Tensor, "#B L A"],
    key: Float[Tensor, "#B S A"],
    vector: Float[Tensor, " A"],
    filters: Float[Tensor, "F 1 W"],
    projection: Float[Tensor, "A F"],
    mask: Bool[Tensor, "#B #L #S"] | None,
    *,
    options: LocationOptions,
    plain: Plain,
) -> Float[Tensor, "B L S"]:
    """Return the weights of all steps.

    Args:
        previous: α before the first step.
        query: W s of each step.
        key: V h.
        vector: w.
        filters: F, of an odd width.
        projection: U.
        mask: which cells each step may read.
        options: how scores become weights.
        plain: computes the same where the kernel does not serve, and the gradients' own gradients.
    """
    library = _library(previous, query, key, vector, filters, projection, mask)
    if library is None:
        return plain(previous, query, key, vector, filters, projection, mask)
    arguments = (previous, query, key, vector, filters, projection)
    if _wants_gradients(*arguments):
        weights, _ = _LocationAware.apply(library, plain, options, None, mask, *arguments, None)  # type: ignore[no-untyped-call]
        return cast("Tensor", weights)
    return _forward(library, options, *arguments, mask, keep=False)[0]


def location_aware_read(
    previous: Float[Tensor, "B S"],
    query: Float[Tensor, "#B L A"],
    key: Float[Tensor, "#B S A"],
    vector: Float[Tensor, " A"],
    filters: Float[Tensor, "F 1 W"],
    projection: Float[Tensor, "A F"],
    mask: Bool[Tensor, "#B #L #S"] | None,
    value: Float[Tensor, "#B S V"],
    *,
    alias: Float[Tensor, "#B S A"] | None = None,
    options: LocationOptions,
    plain: Plain,
) -> tuple[Float[Tensor, "B L V"], Float[Tensor, "B L S"]] | None:
    """Return what the steps read of the value, and the weights; None where the kernel does not serve.

    It serves where `location_aware` does, of which the other arguments are those. The value is fetched from memory
    while the scores are computed. ``alias`` is the key as `source_gradients.share` returned it.
    """
    arguments = (previous, query, key, vector, filters, projection, value)
    library = _library(*arguments, mask) if value.shape[0] == key.shape[0] else None
    if library is None:
        return None
    if value.shape[:2] != key.shape[:2]:
        raise ShapeError(
            f"location_aware: value has shape {tuple(value.shape)}, expected {tuple(key.shape[:2])} and its size. "
            "Key and value have one entry per cell."
        )
    if _wants_gradients(*arguments):
        node = None
        if alias is not None and source_gradients.owns(alias, key, value):
            node, arguments = alias.grad_fn, (previous, query, alias, vector, filters, projection, value)
        weights, output = _LocationAware.apply(library, plain, options, node, mask, *arguments)  # type: ignore[no-untyped-call]
        return output, weights
    found = _forward(library, options, *arguments[:-1], mask, keep=False, value=value)
    return cast("Tensor", found.output), found.weights


def _library(*arguments: Tensor | None) -> ctypes.CDLL | None:
    """Return the kernel's library where it serves these arguments, of which the last is the mask."""
    floats = [one for one in arguments[:-1] if one is not None]
    given = [one for one in arguments if one is not None]
    previous, query, key, *rest = floats
    suits = all(one.dtype is torch.float32 and one.is_cpu for one in floats)
    if not suits or previous.numel() == 0 or is_traced() or is_watched(*given):
        return None
    shares_source = {query.shape[0], key.shape[0]} != {previous.shape[0]}
    if (shares_source and _wants_gradients(*floats)) or _KERNEL.library is None:
        return None
    _check(previous, query, key, *rest[:3])
    return _KERNEL.library


def _wants_gradients(*floats: Tensor) -> bool:
    return torch.is_grad_enabled() and any(one.requires_grad for one in floats)


def _check(previous: Tensor, query: Tensor, key: Tensor, vector: Tensor, filters: Tensor, projection: Tensor) -> None:
    """Raise an error for sizes that do not fit: compiled code would read past the end."""
    size, count, width = vector.shape[0], filters.shape[0], filters.shape[-1]
    fits = (
        query.shape[2] == key.shape[2] == size
        and previous.shape[1] == key.shape[1]
        and {query.shape[0], key.shape[0]} <= {1, previous.shape[0]}
        and filters.shape == (count, 1, width)
        and projection.shape == (size, count)
        and width % 2 == 1
        and count > 0
    )
    if not fits:
        raise ShapeError(
            f"location_aware: previous has shape {tuple(previous.shape)}, query {tuple(query.shape)}, key "
            f"{tuple(key.shape)}, vector {tuple(vector.shape)}, filters {tuple(filters.shape)} and projection "
            f"{tuple(projection.shape)}, expected (B, S), (B, L, A), (B, S, A), (A), (F, 1, odd) and (A, F), "
            "with at least one filter."
        )


# --- the compiled path

_ADDRESS, _SIZE, _COUNT, _REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
_SIGNATURES = {
    "scratch": [*[_SIZE] * 4, _COUNT],
    "kept": [_SIZE] * 3,
    "forward": [
        _ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _SIZE, _SIZE, *[_ADDRESS] * 4,
        _ADDRESS, _SIZE, _SIZE, *[_SIZE] * 6, _REAL, _COUNT, *[_ADDRESS] * 5, _COUNT,
    ],
    "backward": [*[_ADDRESS] * 12, *[_SIZE] * 7, _REAL, *[_ADDRESS] * 6, _COUNT, _COUNT],
}  # fmt: skip


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _threads(sizes: tuple[int, ...]) -> int:
    return max(1, min(torch.get_num_threads(), 1 + math.prod(sizes[:4]) // _THREAD_CELLS, sizes[0]))


class _Found(NamedTuple):
    """The weights; what the backward needs, f and, for smoothing, the slopes of the log-sigmoids; what was read."""

    weights: Tensor
    kept: Tensor | None
    slopes: Tensor | None
    output: Tensor | None


def _forward(
    library: ctypes.CDLL,
    options: LocationOptions,
    previous: Tensor,
    query: Tensor,
    key: Tensor,
    vector: Tensor,
    filters: Tensor,
    projection: Tensor,
    mask: Tensor | None,
    *,
    keep: bool = True,
    value: Tensor | None = None,
) -> _Found:
    (batch, cells), steps, (count, width) = previous.shape, query.shape[1], filters.shape[::2]
    sizes = (batch, steps, cells, vector.shape[0], count, width)
    given = previous, query.expand(batch, -1, -1), key, vector, filters, projection
    previous, query, key, vector, filters, projection = (one.contiguous() for one in given)
    mask_strides = (0, 0)
    if mask is not None:
        mask = mask.expand(batch, -1, cells).contiguous()
        mask_strides = (mask.stride(0), 0 if mask.shape[1] == 1 else cells)
    output, value_sizes = None, (0, 0)
    if value is not None:
        value, output = value.contiguous(), query.new_empty(batch, steps, value.shape[2])
        value_sizes = (0 if value.shape[0] == 1 else value.stride(0), value.shape[2])
    weights = query.new_empty(batch, steps, cells)
    kept = query.new_empty(batch, steps, library.foci_location_aware_kept(cells, count, width)) if keep else None
    slopes = torch.empty_like(weights) if keep and options.smoothing else None
    threads = _threads(sizes)
    scratch = query.new_empty(library.foci_location_aware_scratch(*sizes[2:], threads))
    library.foci_location_aware_forward(
        query.data_ptr(), key.data_ptr(), 0 if key.shape[0] == 1 else key.stride(0), _address(mask), *mask_strides,
        previous.data_ptr(), vector.data_ptr(), filters.data_ptr(), projection.data_ptr(),
        _address(value), *value_sizes, *sizes, *options,
        scratch.data_ptr(), weights.data_ptr(), _address(kept), _address(slopes), _address(output), threads,
    )  # fmt: skip
    return _Found(weights, kept, slopes, output)


class _Reading(NamedTuple):
    """The value, the gradient of what was read of it, and whether the value's own is wanted."""

    value: Tensor
    grad: Tensor
    needs_value: bool


def _backward(
    library: ctypes.CDLL,
    sharpening: float,
    grad: Tensor,
    arguments: tuple[Tensor, ...],
    found: _Found,
    reading: _Reading | None = None,
    *,
    needs_previous: bool = True,
    key_sum: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """Return a gradient for each floating-point argument of `location_aware`, and one for the value.

    That of the key is added to ``key_sum``, if given.
    """
    previous, query, key, vector, filters, projection = (one.contiguous() for one in arguments)
    (batch, cells), steps, (count, width) = previous.shape, query.shape[1], filters.shape[::2]
    sizes = (batch, steps, cells, vector.shape[0], count, width)
    d_previous = torch.empty_like(previous) if needs_previous else None
    d_query, d_key = torch.empty_like(query), torch.empty_like(key) if key_sum is None else key_sum
    d_parameters = query.new_empty(batch, vector.numel() + filters.numel() + projection.numel())
    value = output_grad = d_value = None
    if reading is not None:
        value, output_grad = reading.value.contiguous(), reading.grad.contiguous()
        d_value = torch.empty_like(value) if reading.needs_value else None
    threads = _threads(sizes)
    scratch = query.new_empty(library.foci_location_aware_scratch(*sizes[2:], threads))
    given = (grad.contiguous(), query, key, previous, vector, filters, projection, found.weights, found.kept,
             found.slopes, output_grad, value)  # fmt: skip
    into = (d_query, d_key, d_previous, d_parameters, d_value)
    value_size = 0 if value is None else value.shape[2]
    library.foci_location_aware_backward(
        *map(_address, given), value_size, *sizes, sharpening, scratch.data_ptr(), *map(_address, into),
        key_sum is not None, threads,
    )  # fmt: skip
    parameters = (vector, filters, projection)
    sums = d_parameters.sum(dim=0).split([one.numel() for one in parameters])
    shaped = (one.view(like.shape) for one, like in zip(sums, parameters))
    return d_previous, d_query, d_key, *shaped, d_value


def _plain_example(
    options: LocationOptions, previous: Tensor, query: Tensor, key: Tensor, *rest: Tensor
) -> tuple[Tensor, Tensor]:
    """The equations without a mask, for the self-check: the weights, and what is read."""
    vector, filters, projection, value = rest
    weights = []
    for t in range(query.shape[1]):
        features = F.conv1d(previous.unsqueeze(1), filters, padding=filters.shape[-1] // 2)
        scores = torch.tanh(query[:, t : t + 1] + key + features.mT @ projection.mT) @ vector * options.sharpening
        previous = torch.softmax(F.logsigmoid(scores) if options.smoothing else scores, dim=-1)
        weights.append(previous)
    stacked = torch.stack(weights, dim=1)
    return stacked, stacked @ value


def _self_check(library: ctypes.CDLL) -> bool:
    """Declare the signatures, and compare three steps with the equations.

    19 hidden numbers fill vectors and a rest; filters of 97 cells are split twice.
    """
    for name, types in _SIGNATURES.items():
        function = getattr(library, f"foci_location_aware_{name}")
        function.argtypes = types
        function.restype = _SIZE if name in ("scratch", "kept") else None
    return all(_agrees(library, cells, width) for cells, width in ((23, 7), (101, 97)))


def _agrees(library: ctypes.CDLL, cells: int, width: int) -> bool:
    """Return whether kernel and equations agree, in values and along one direction of all arguments."""
    shapes = [(1, cells), (1, 3, 19), (1, cells, 19), (19,), (5, 1, width), (19, 5), (1, cells, 18)]
    point, along = ([fixed_numbers(seed + number, *shape) for number, shape in enumerate(shapes)] for seed in (1, 11))
    for options in (LocationOptions(), LocationOptions(2.0, smoothing=True)):
        wanted = _plain_example(options, *point)
        grads = [one.cos() for one in wanted]

        def moved(distance: float, options: LocationOptions = options, grads: list[Tensor] = grads) -> Tensor:
            there = (one + distance * other for one, other in zip(point, along))
            return torch.stack([(one * grad).sum() for one, grad in zip(_plain_example(options, *there), grads)]).sum()

        slope = (moved(1e-5) - moved(-1e-5)) / 2e-5  # autograd may be switched off where this is called
        *arguments, value = (one.float() for one in point)
        previous, query, key, vector, filters, projection = arguments
        found = _forward(library, options, previous, query, key, vector, filters, projection, None, value=value)
        if found.kept is None or found.output is None:
            return False
        reading = _Reading(value, grads[1].float(), needs_value=True)
        back = _backward(library, options.sharpening, grads[0].float(), tuple(arguments), found, reading)
        moved_by = sum((one.double() * other).sum() for one, other in zip(back, along) if one is not None)
        errors = [(have - want).abs().max() for have, want in zip((found.weights, found.output), wanted)]
        if not bool(max(errors) <= 1e-5) or not bool(abs(moved_by - slope) <= 1e-3):
            return False
    return True


_KERNEL = Kernel("location_aware", _self_check)


class _LocationAware(torch.autograd.Function):
    """The weights and, where a value is given, what they read of it; ``node`` is that of a shared source."""

    @staticmethod
    def forward(
        ctx: Any,
        library: ctypes.CDLL,
        plain: Plain,
        options: LocationOptions,
        node: Any,
        mask: Tensor | None,
        *arguments: Any,
    ) -> tuple[Tensor, Tensor | None]:
        *floats, value = arguments
        previous, query, key, vector, filters, projection = floats
        found = _forward(library, options, previous, query, key, vector, filters, projection, mask, value=value)
        ctx.library, ctx.plain, ctx.sharpening, ctx.node = library, plain, options.sharpening, node
        ctx.save_for_backward(*arguments, mask, found.weights, found.kept, found.slopes)
        ctx.set_materialize_grads(False)
        return found.weights, found.output

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, output_grad: Tensor | None) -> tuple[Any, ...]:
        *floats, value, mask, weights, kept, slopes = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: someone wants the gradients' own gradients
            return *_NOT_TENSORS, *_twice(ctx.plain, floats, value, mask, (grad, output_grad))
        sums = None if ctx.node is None else source_gradients.sums_of(ctx.node)
        needs_previous, needs_value = ctx.needs_input_grad[5], ctx.needs_input_grad[11] and ctx.node is None
        previous_grad, query_grad, key_grad, *rest = _backward(
            ctx.library,
            ctx.sharpening,
            torch.zeros_like(weights) if grad is None else grad,
            tuple(floats),
            _Found(weights, kept, slopes, None),
            None if output_grad is None else _Reading(value, output_grad, needs_value),
            needs_previous=needs_previous,
            key_sum=None if sums is None else sums.key,
        )
        if sums is not None:
            sums.key = key_grad
            if output_grad is not None:
                sums.add_reading(weights, output_grad)
        return *_NOT_TENSORS, previous_grad, query_grad, None if ctx.node is not None else key_grad, *rest


_NOT_TENSORS = (None,) * 5
"""The gradients of the first arguments of `_LocationAware`, and of the mask."""


def _twice(
    plain: Plain, floats: list[Tensor], value: Tensor | None, mask: Tensor | None, grads: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, ...]:
    """Return the gradients by the plain form, so that they can be differentiated again."""

    def computed(*given: Tensor) -> tuple[Tensor, ...]:
        weights = plain(*given[: len(floats)], mask)
        return (weights,) if value is None else (weights, weights @ given[-1])

    given = floats if value is None else [*floats, value]
    found = differentiate(computed, given, grads, create_graph=True)
    return found if value is not None else (*found, None)
