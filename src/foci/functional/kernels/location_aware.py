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


class LocationInputs(NamedTuple):
    """What the scores of all steps are computed from."""

    previous: Float[Tensor, "B S"]
    """α before the first step."""
    query: Float[Tensor, "#B L A"]
    """W s of each step."""
    key: Float[Tensor, "#B S A"]
    """V h."""
    vector: Float[Tensor, " A"]
    """w."""
    filters: Float[Tensor, "F 1 W"]
    """F, of an odd width."""
    projection: Float[Tensor, "A F"]
    """U."""


def location_aware(
    inputs: LocationInputs,
    mask: Bool[Tensor, "#B #L #S"] | None,
    value: Float[Tensor, "#B S V"] | None = None,
    *,
    alias: Float[Tensor, "#B S A"] | None = None,
    options: LocationOptions,
    plain: Plain,
) -> tuple[Float[Tensor, "B L S"], Float[Tensor, "B L V"] | None] | None:
    """Return the weights of all steps, and what they read of the value; None where the kernel does not serve.

    Args:
        inputs: what the scores are computed from.
        mask: which positions each step may read.
        value: fetched from memory while the scores are computed. Default: nothing is read.
        alias: the key as `source_gradients.share` returned it.
        options: how scores become weights.
        plain: computes the weights, for the gradients' own gradients.
    """
    floats = inputs if value is None else (*inputs, value)
    library = _library(inputs, value, mask)
    if library is None:
        return None
    if value is not None and value.shape[:2] != inputs.key.shape[:2]:
        raise ShapeError(
            f"location_aware: value has shape {tuple(value.shape)}, expected {tuple(inputs.key.shape[:2])} and its "
            "size. Key and value have one entry per position."
        )
    if not wants_gradients(*floats):
        found = _forward(library, options, inputs, mask, value, keep=False)
        return found.weights, found.output
    node = None
    if alias is not None and value is not None and source_gradients.owns(alias, inputs.key, value):
        node, inputs = alias.grad_fn, inputs._replace(key=alias)
    results: tuple[Tensor, Tensor | None]
    results = _LocationAware.apply(library, plain, options, node, mask, *inputs, value)  # type: ignore[no-untyped-call]
    return results


def _library(inputs: LocationInputs, value: Tensor | None, mask: Tensor | None) -> ctypes.CDLL | None:
    """Return the kernel's library where it serves these arguments."""
    previous, query, key = inputs[:3]
    floats = inputs if value is None else (*inputs, value)
    watched = is_traced() or is_watched(*floats, *(() if mask is None else (mask,)))
    if watched or previous.numel() == 0 or (value is not None and value.shape[0] != key.shape[0]):
        return None
    shares_source = {query.shape[0], key.shape[0]} != {previous.shape[0]}
    library = None if shares_source and wants_gradients(*floats) else _KERNEL.library_for(*floats)
    if library is not None:
        _check(*inputs)
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


def _sizes(inputs: LocationInputs) -> tuple[int, int, int, int, int, int]:
    """Return the sizes of batch, steps, positions and hidden numbers, and the number of filters and their width."""
    (batch, positions), steps = inputs.previous.shape, inputs.query.shape[1]
    return batch, steps, positions, inputs.vector.shape[0], inputs.filters.shape[0], inputs.filters.shape[2]


class _Found(NamedTuple):
    """The weights; what the backward needs, f and, for smoothing, the slopes of the log-sigmoids; what was read."""

    weights: Tensor
    kept: Tensor | None
    slopes: Tensor | None
    output: Tensor | None


def _forward(
    library: ctypes.CDLL,
    options: LocationOptions,
    inputs: LocationInputs,
    mask: Tensor | None,
    value: Tensor | None,
    *,
    keep: bool = True,
) -> _Found:
    sizes = batch, steps, positions, _, filter_count, width = _sizes(inputs)
    given = inputs._replace(query=inputs.query.expand(batch, -1, -1))
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
    inputs: LocationInputs,
    found: _Found,
    reading: _Reading | None = None,
    *,
    needs_previous: bool = True,
    key_sum: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """Return a gradient for each floating-point argument of `location_aware`, and one for the value.

    That of the key is added to ``key_sum``, if given.
    """
    previous, query, key, vector, filters, projection = (one.contiguous() for one in inputs)
    sizes = _sizes(inputs)
    batch = sizes[0]
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
            inputs, value = LocationInputs(*arguments[:6]), arguments[6]
            found = _forward(library, options, inputs, None, value)
            reading = _Reading(value, grads[1], needs_value=True)
            gradients = _backward(library, options.sharpening, grads[0], inputs, found, reading)
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
        found = _forward(library, options, LocationInputs(*floats), mask, value)
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
            LocationInputs(*floats),
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
