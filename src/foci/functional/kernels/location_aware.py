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
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from foci.errors import ShapeError
from foci.functional.kernels import source_gradients
from foci.functional.kernels.gradients import differentiate
from foci.functional.kernels.kernel import ADDRESS, COUNT, REAL, SIZE, Kernel, run, threads, wants_gradients
from foci.functional.kernels.operators import Grads
from foci.functional.kernels.self_check import agrees, numbers_for
from foci.tracing import is_traced, is_watched

_THREAD_ENTRIES = 1 << 16
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
        mask: which positions each step may read.
        options: how scores become weights.
        plain: computes the same where the kernel does not serve, and the gradients' own gradients.
    """
    library = _library(previous, query, key, vector, filters, projection, mask)
    if library is None:
        return plain(previous, query, key, vector, filters, projection, mask)
    arguments = (previous, query, key, vector, filters, projection)
    if wants_gradients(*arguments):
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
            "Key and value have one entry per position."
        )
    if wants_gradients(*arguments):
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
    if previous.numel() == 0 or is_traced() or is_watched(*given):
        return None
    shares_source = {query.shape[0], key.shape[0]} != {previous.shape[0]}
    library = None if shares_source and wants_gradients(*floats) else _KERNEL.library_for(*floats)
    if library is None:
        return None
    _check(previous, query, key, *rest[:3])
    return library


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

_FUNCTIONS = {
    "scratch": (SIZE, [*[SIZE] * 4, COUNT]),
    "kept": (SIZE, [SIZE] * 3),
    "forward": (
        None,
        [
            *(ADDRESS, ADDRESS, SIZE, ADDRESS, SIZE, SIZE, *[ADDRESS] * 5),
            *(*[SIZE] * 8, REAL, COUNT, *[ADDRESS] * 5, COUNT),
        ],
    ),
    "backward": (None, [*[ADDRESS] * 12, *[SIZE] * 7, REAL, *[ADDRESS] * 6, COUNT, COUNT]),
}


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
    (batch, positions), steps, (filter_count, width) = previous.shape, query.shape[1], filters.shape[::2]
    sizes = (batch, steps, positions, vector.shape[0], filter_count, width)
    given = previous, query.expand(batch, -1, -1), key, vector, filters, projection
    previous, query, key, vector, filters, projection = (one.contiguous() for one in given)
    mask_strides = (0, 0)
    if mask is not None:
        mask = mask.expand(batch, -1, positions).contiguous()
        mask_strides = (mask.stride(0), 0 if mask.shape[1] == 1 else positions)
    output, value_sizes = None, (0, 0)
    if value is not None:
        value, output = value.contiguous(), query.new_empty(batch, steps, value.shape[2])
        value_sizes = (0 if value.shape[0] == 1 else value.stride(0), value.shape[2])
    weights = query.new_empty(batch, steps, positions)
    room = library.foci_location_aware_kept(positions, filter_count, width)
    kept = query.new_empty(batch, steps, room) if keep else None
    slopes = torch.empty_like(weights) if keep and options.smoothing else None
    count = threads(math.prod(sizes[:4]), _THREAD_ENTRIES, batch)
    scratch = query.new_empty(library.foci_location_aware_scratch(*sizes[2:], count))
    run(
        library.foci_location_aware_forward,
        *(query, key, 0 if key.shape[0] == 1 else key.stride(0), mask, *mask_strides),
        *(previous, vector, filters, projection, value, *value_sizes, *sizes, *options),
        *(scratch, weights, kept, slopes, output, count),
    )
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
    (batch, positions), steps, (filter_count, width) = previous.shape, query.shape[1], filters.shape[::2]
    sizes = (batch, steps, positions, vector.shape[0], filter_count, width)
    d_previous = torch.empty_like(previous) if needs_previous else None
    d_query, d_key = torch.empty_like(query), torch.empty_like(key) if key_sum is None else key_sum
    d_parameters = query.new_empty(batch, vector.numel() + filters.numel() + projection.numel())
    value = output_grad = d_value = None
    if reading is not None:
        value, output_grad = reading.value.contiguous(), reading.grad.contiguous()
        d_value = torch.empty_like(value) if reading.needs_value else None
    count = threads(math.prod(sizes[:4]), _THREAD_ENTRIES, batch)
    scratch = query.new_empty(library.foci_location_aware_scratch(*sizes[2:], count))
    given = (grad.contiguous(), query, key, previous, vector, filters, projection, found.weights, found.kept,
             found.slopes, output_grad, value)  # fmt: skip
    value_size = 0 if value is None else value.shape[2]
    run(
        library.foci_location_aware_backward,
        *given,
        *(value_size, *sizes, sharpening, scratch),
        *(d_query, d_key, d_previous, d_parameters, d_value, key_sum is not None, count),
    )
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
    """Compare three steps with the equations.

    19 hidden numbers fill vectors and a rest; filters of 97 positions are split twice.
    """

    def fits(positions: int, width: int, options: LocationOptions) -> bool:
        def compiled(arguments: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[list[Tensor], Grads]:
            *floats, value = arguments
            previous, query, key, vector, filters, projection = floats
            found = _forward(library, options, previous, query, key, vector, filters, projection, None, value=value)
            reading = _Reading(value, grads[1], needs_value=True)
            gradients = _backward(library, options.sharpening, grads[0], tuple(floats), found, reading)
            return [found.weights, cast("Tensor", found.output)], gradients

        shapes = [(1, positions), (1, 3, 19), (1, positions, 19), (19,), (5, 1, width), (19, 5), (1, positions, 18)]
        plain = partial(_plain_example, options)
        return agrees(plain, compiled, numbers_for(*shapes), {torch.float32: 1e-4})

    return all(
        fits(positions, width, options)
        for positions, width in ((23, 7), (101, 97))
        for options in (LocationOptions(), LocationOptions(2.0, smoothing=True))
    )


_KERNEL = Kernel("location_aware", _FUNCTIONS, _self_check)


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
