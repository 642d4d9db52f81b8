"""Steps of location-aware attention in one call, forward and backward.

    f_t = F ∗ α_{t−1},   e_tj = vᵀ tanh(q_t + k_j + U f_tj),   α_t = normalise(β e_t)

``location_aware.cpp`` computes it for float32 on a CPU, with a softmax or with sigmoids divided by their sum. The
forward keeps f, and the backward computes the tanh again. In other dtypes, on other devices, with other normalisers,
without a compiler, and where something other than eager autograd watches, `foci.functional.stepwise` runs one step
after the other. tanh has an absolute error of about 1e-7.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from foci.errors import ShapeError
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
    floats = (previous, query, key, vector, filters, projection)
    arguments = (*floats, mask)
    suits = all(one.dtype is torch.float32 and one.is_cpu for one in floats)
    if not suits or is_traced() or is_watched(*(one for one in arguments if one is not None)):
        return plain(*arguments)
    wants_gradient = torch.is_grad_enabled() and any(one.requires_grad for one in floats)
    batch, shared_source = previous.shape[0], key.shape[0] != previous.shape[0] or query.shape[0] != previous.shape[0]
    library = None if batch == 0 or (wants_gradient and shared_source) else _KERNEL.library
    if library is None:
        return plain(*arguments)
    _check(previous, query, key, vector, filters, projection)
    if wants_gradient:
        weights: Tensor = _LocationAware.apply(library, plain, options, *arguments)  # type: ignore[no-untyped-call]
        return weights
    return _forward(library, options, *arguments, keep=False)[0]


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
    options: LocationOptions,
) -> tuple[Float[Tensor, "B L V"], Float[Tensor, "B L S"]] | None:
    """Return what the steps read of the value, and the weights; None where the kernel does not serve.

    It serves where `location_aware` does and nothing is recorded for gradients. The arguments are those of
    `location_aware`. The value is fetched from memory while the scores are computed.
    """
    floats = (previous, query, key, vector, filters, projection, value)
    given = floats if mask is None else (*floats, mask)
    if torch.is_grad_enabled() and any(one.requires_grad for one in floats):
        return None
    suits = all(one.dtype is torch.float32 and one.is_cpu for one in floats) and value.shape[0] == key.shape[0]
    if not suits or previous.shape[0] == 0 or is_traced() or is_watched(*given) or _KERNEL.library is None:
        return None
    _check(*floats[:-1])
    if value.shape[:2] != key.shape[:2]:
        raise ShapeError(
            f"location_aware: value has shape {tuple(value.shape)}, expected {tuple(key.shape[:2])} and its size. "
            "Key and value have one entry per cell."
        )
    value, output = value.contiguous(), value.new_empty(previous.shape[0], query.shape[1], value.shape[2])
    weights, _, _ = _forward(_KERNEL.library, options, *floats[:-1], mask, keep=False, reading=(value, output))
    return output, weights


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
    )
    if not fits:
        raise ShapeError(
            f"location_aware: previous has shape {tuple(previous.shape)}, query {tuple(query.shape)}, key "
            f"{tuple(key.shape)}, vector {tuple(vector.shape)}, filters {tuple(filters.shape)} and projection "
            f"{tuple(projection.shape)}, expected (B, S), (B, L, A), (B, S, A), (A), (F, 1, odd) and (A, F)."
        )


# --- the compiled path

_ADDRESS, _SIZE, _COUNT, _REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
_SIGNATURES = {
    "scratch": [*[_SIZE] * 4, _COUNT],
    "kept": [_SIZE, _SIZE],
    "forward": [
        _ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _SIZE, _SIZE, *[_ADDRESS] * 4,
        _ADDRESS, _SIZE, _SIZE, *[_SIZE] * 6, _REAL, _COUNT, *[_ADDRESS] * 5, _COUNT,
    ],
    "backward": [*[_ADDRESS] * 10, *[_SIZE] * 6, _REAL, *[_ADDRESS] * 7, _COUNT],
}  # fmt: skip


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _threads(sizes: tuple[int, ...]) -> int:
    return max(1, min(torch.get_num_threads(), 1 + math.prod(sizes[:4]) // _THREAD_CELLS, sizes[0]))


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
    reading: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the weights and what the backward needs: f and, for smoothing, the slopes of the log-sigmoids.

    ``reading`` is the value, and the output that is written.
    """
    (batch, cells), steps, (count, width) = previous.shape, query.shape[1], filters.shape[::2]
    sizes = (batch, steps, cells, vector.shape[0], count, width)
    given = previous, query.expand(batch, -1, -1), key, vector, filters, projection
    previous, query, key, vector, filters, projection = (one.contiguous() for one in given)
    mask_strides = (0, 0)
    if mask is not None:
        mask = mask.expand(batch, -1, cells).contiguous()
        mask_strides = (mask.stride(0), 0 if mask.shape[1] == 1 else cells)
    value, output = (None, None) if reading is None else reading
    value_sizes = (0, 0) if value is None else (0 if value.shape[0] == 1 else value.stride(0), value.shape[2])
    weights = query.new_empty(batch, steps, cells)
    kept = query.new_empty(batch, steps, library.foci_location_aware_kept(cells, count)) if keep else None
    slopes = torch.empty_like(weights) if keep and options.smoothing else None
    threads = _threads(sizes)
    scratch = query.new_empty(library.foci_location_aware_scratch(*sizes[2:], threads))
    library.foci_location_aware_forward(
        query.data_ptr(), key.data_ptr(), 0 if key.shape[0] == 1 else key.stride(0), _address(mask), *mask_strides,
        previous.data_ptr(), vector.data_ptr(), filters.data_ptr(), projection.data_ptr(),
        _address(value), *value_sizes, *sizes, *options,
        scratch.data_ptr(), weights.data_ptr(), _address(kept), _address(slopes), _address(output), threads,
    )  # fmt: skip
    return weights, kept, slopes


def _backward(
    library: ctypes.CDLL,
    sharpening: float,
    grad: Tensor,
    arguments: tuple[Tensor, ...],
    weights: Tensor,
    kept: Tensor,
    slopes: Tensor | None,
    needs_previous: bool = True,
) -> tuple[Tensor | None, ...]:
    """Return a gradient for each floating-point argument of `location_aware`."""
    previous, query, key, vector, filters, projection = (one.contiguous() for one in arguments)
    (batch, cells), steps, (count, width) = previous.shape, query.shape[1], filters.shape[::2]
    sizes = (batch, steps, cells, vector.shape[0], count, width)
    d_previous = torch.empty_like(previous) if needs_previous else None
    d_query, d_key = torch.empty_like(query), torch.empty_like(key)
    d_vector, d_filters, d_projection = (one.new_empty(batch, *one.shape) for one in (vector, filters, projection))
    threads = _threads(sizes)
    scratch = query.new_empty(library.foci_location_aware_scratch(*sizes[2:], threads))
    given = (grad.contiguous(), query, key, previous, vector, filters, projection, weights, kept, slopes)
    found = (d_query, d_key, d_previous, d_vector, d_filters, d_projection)
    library.foci_location_aware_backward(
        *map(_address, given), *sizes, sharpening, scratch.data_ptr(), *map(_address, found), threads
    )
    return d_previous, d_query, d_key, d_vector.sum(dim=0), d_filters.sum(dim=0), d_projection.sum(dim=0)


def _plain_example(options: LocationOptions, previous: Tensor, query: Tensor, key: Tensor, *rest: Tensor) -> Tensor:
    """The equations without a mask, for the self-check."""
    vector, filters, projection = rest
    weights = []
    for t in range(query.shape[1]):
        features = F.conv1d(previous.unsqueeze(1), filters, padding=filters.shape[-1] // 2)
        scores = torch.tanh(query[:, t : t + 1] + key + features.mT @ projection.mT) @ vector * options.sharpening
        previous = torch.softmax(F.logsigmoid(scores) if options.smoothing else scores, dim=-1)
        weights.append(previous)
    return torch.stack(weights, dim=1)


def _self_check(library: ctypes.CDLL) -> bool:
    """Declare the signatures, and compare three steps with the equations; 19 numbers fill vectors and a rest."""
    for name, types in _SIGNATURES.items():
        function = getattr(library, f"foci_location_aware_{name}")
        function.argtypes = types
        function.restype = _SIZE if name in ("scratch", "kept") else None
    shapes = [(1, 23), (1, 3, 19), (1, 23, 19), (19,), (5, 1, 7), (19, 5)]
    point, along = ([fixed_numbers(seed + number, *shape) for number, shape in enumerate(shapes)] for seed in (1, 11))
    for options in (LocationOptions(), LocationOptions(2.0, smoothing=True)):
        wanted = _plain_example(options, *point)
        grad = wanted.cos()

        def moved(distance: float, options: LocationOptions = options, grad: Tensor = grad) -> Tensor:
            there = (one + distance * other for one, other in zip(point, along))
            return (_plain_example(options, *there) * grad).sum()

        slope = (moved(1e-5) - moved(-1e-5)) / 2e-5  # autograd may be switched off where this is called
        arguments = tuple(one.float() for one in point)
        previous, query, key, vector, filters, projection = arguments
        weights, kept, slopes = _forward(library, options, previous, query, key, vector, filters, projection, None)
        if kept is None:
            return False
        found = _backward(library, options.sharpening, grad.float(), arguments, weights, kept, slopes)
        moved_by = sum((one.double() * other).sum() for one, other in zip(found, along) if one is not None)
        if not bool((weights - wanted).abs().max() <= 1e-5) or not bool(abs(moved_by - slope) <= 1e-3):
            return False
    return True


_KERNEL = Kernel("location_aware", _self_check)


class _LocationAware(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, library: ctypes.CDLL, plain: Plain, options: LocationOptions, *arguments: Any) -> Tensor:
        weights, kept, slopes = _forward(library, options, *arguments)
        ctx.library, ctx.plain, ctx.sharpening = library, plain, options.sharpening
        ctx.save_for_backward(*arguments, weights, kept, slopes)
        return weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        *arguments, mask, weights, kept, slopes = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: someone wants the gradients' own gradients
            given = tuple(arguments)
            found = differentiate(lambda *floats: ctx.plain(*floats, mask), given, (grad,), create_graph=True)
        else:
            needs_previous = ctx.needs_input_grad[3]
            found = _backward(
                ctx.library, ctx.sharpening, grad, tuple(arguments), weights, kept, slopes, needs_previous
            )
        return None, None, None, *found, None
