"""Local attention by dot products without gathering its windows: output, weights, and gradients.

    p_w = softmax(scale · q · k_w),    a_w = p_w · e^{−(s_w − c)² / 2σ²},    output = Σ_w a_w · v_w

``window.cpp`` computes them for float32 and float64 on a CPU, and for bfloat16 and float16 in float32. The backward
pass computes the weights again and keeps only the arguments. Without a compiler, on other devices, under
autocast, and wherever something other than eager autograd is active (functional transforms, tensor subclasses),
`foci.functional.window_plain` computes the same in plain torch. Tracers see one operator.

Accuracy: the sums are those of the plain path, to rounding. Where a window begins and ends is exactly the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from foci.errors import ShapeError
from foci.functional import window_plain
from foci.functional.kernels.kernel import ADDRESS, COUNT, SIZE, Kernel, run, threads
from foci.functional.kernels.operators import Grads, Operator
from foci.functional.kernels.self_check import agrees, numbers_for
from foci.functional.window_plain import LocalWindow
from foci.tracing import is_traced, is_watched

_THREAD_PRODUCTS = 1 << 17
"""Multiplications per additional thread, below which starting it costs more than it saves."""


def read_dots(query: Tensor, key: Tensor, value: Tensor, window: LocalWindow, scale: float) -> tuple[Tensor, Tensor]:
    """Return output ``(B, L, V)`` and weights ``(B, L, W)`` of a softmax over ``scale · q · k``."""
    inactive = not is_traced() and (is_watched(query, key, value, window.center) or _KERNEL.library is None)
    if inactive or not _suits_kernel(query, key, value):
        return window_plain.read_dots(query, key, value, window, scale)
    batch = window.center.shape[0]
    dtype = query.dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    query, key, value = (tensor.to(wide).expand(batch, -1, -1) for tensor in (query, key, value))
    output, weights = _READ(query, key, value, *window, scale)
    return output.to(dtype), weights.to(dtype)


def _suits_kernel(query: Tensor, key: Tensor, value: Tensor) -> bool:
    if torch.is_autocast_enabled("cpu") or not query.dtype == key.dtype == value.dtype:
        return False
    return _KERNEL.suits(query)


# --- the compiled path


class _Arguments(ctypes.Structure):
    """``Arguments`` of window.cpp."""

    _fields_ = (
        *((name, kind) for part in ("query", "key", "value") for name, kind in (
            (part, ADDRESS), (f"{part}_batch", SIZE), (f"{part}_row", SIZE)
        )),
        ("mask", ADDRESS), ("mask_batch", SIZE), ("mask_row", SIZE), ("mask_position", SIZE),
        ("center", ADDRESS), ("start", ADDRESS),
        *((name, SIZE) for name in (
            "B", "L", "S", "D", "V", "radius", "gaussian", "double_numbers", "double_positions"
        )),
        ("spread", ctypes.c_double), ("scale", ctypes.c_double),
    )  # fmt: skip


class _WindowCall:
    """One call of the library."""

    def __init__(self, library: ctypes.CDLL, arguments: Sequence[Any]) -> None:
        query, key, value, center, start, mask, radius, sigma, scale = arguments
        (B, L, D), (_, S, V) = query.shape, value.shape
        if mask is not None:
            mask = mask.expand(B, L, S)
        shapes = {"query": (B, L, D), "key": (B, S, D), "value": (B, S, V), "center": (B, L), "start": (B, L)}
        dtypes = {"query": query.dtype, "key": query.dtype, "value": query.dtype, "center": center.dtype}
        for name, tensor in zip(shapes, arguments):
            # Compiled code would read past the end.
            if tensor.shape != shapes[name] or tensor.dtype != dtypes.get(name, torch.int64):
                raise ShapeError(
                    f"local attention: {name} has shape {tuple(tensor.shape)} and {tensor.dtype}, expected "
                    f"{shapes[name]}, {dtypes.get(name, torch.int64)}."
                )
        rows = [tensor if tensor.stride(2) == 1 else tensor.contiguous() for tensor in (query, key, value)]
        self._library = library
        self._parts = (*rows, center.contiguous(), start.contiguous(), mask)  # kept alive during the call
        self._arguments = _Arguments(
            *(number for one in rows for number in (one.data_ptr(), one.stride(0), one.stride(1))),
            *((None, 0, 0, 0) if mask is None else (mask.data_ptr(), *mask.stride())),
            *(one.data_ptr() for one in self._parts[3:5]),
            B, L, S, D, V, radius,
            sigma is not None, query.dtype == torch.float64, center.dtype == torch.float64,
            0.0 if sigma is None else 2 * sigma**2, scale,
        )  # fmt: skip
        self._address = ctypes.addressof(self._arguments)
        self._width = 2 * radius + 1
        self._threads = threads(B * L * self._width * (D + V), _THREAD_PRODUCTS)

    def forward(self) -> tuple[Tensor, Tensor]:
        query, value, start = self._parts[0], self._parts[2], self._parts[4]
        output = query.new_empty(*start.shape, value.shape[-1])
        weights = query.new_empty(*start.shape, self._width)
        run(self._library.foci_window_forward, self._address, output, weights, self._threads)
        return output, weights

    def backward(self, grads: Grads) -> tuple[Tensor, ...]:
        start = self._parts[4]
        known = [None if grad is None else grad.contiguous() for grad in grads]
        found = tuple(tensor.new_empty(tensor.shape) for tensor in self._parts[:4])
        room = self._library.foci_window_scratch(*start.shape, self._width, self._threads)
        scratch = found[0].new_empty(room)
        run(self._library.foci_window_backward, self._address, *known, scratch, *found, self._threads)
        return found


_FUNCTIONS = {
    "forward": (None, [ADDRESS, ADDRESS, ADDRESS, COUNT]),
    "backward": (None, [*[ADDRESS] * 8, COUNT]),
    "scratch": (SIZE, [SIZE, SIZE, SIZE, COUNT]),
}


def _self_check(library: ctypes.CDLL) -> bool:
    """Compare two windows with the plain path; 11 entries fill a vector and a rest."""
    inputs = numbers_for((1, 2, 11), (1, 4, 11), (1, 4, 13))
    center = torch.tensor([[0.25, 2.0]], dtype=torch.float64, device="cpu")
    start = torch.tensor([[0, 1]], device="cpu")
    mask = torch.tensor([[[True, True, True, False]]], device="cpu")

    def fits(sigma: float | None) -> bool:
        others = (start, mask, 1, sigma, 0.5)

        def compiled(arguments: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
            call = _WindowCall(library, (*arguments, *others))
            return call.forward(), call.backward(grads)

        tolerances = {torch.float32: 1e-5, torch.float64: 1e-12}
        return agrees(lambda *four: _plain(*four, *others), compiled, (*inputs, center), tolerances)

    return fits(None) and fits(0.5)


_KERNEL = Kernel("window", _FUNCTIONS, _self_check, (torch.float32, torch.float64, torch.bfloat16, torch.float16))


# --- the operator, whose arguments are query, key, value, the five fields of the window, and the scale


def _plain(*arguments: Any) -> tuple[Tensor, Tensor]:
    query, key, value, *window, scale = arguments
    output, weights = window_plain.read_dots(query, key, value, LocalWindow(*window), scale)
    return output.contiguous(), weights.contiguous()


def _read(*arguments: Any) -> tuple[Tensor, Tensor]:
    library = _KERNEL.library
    return _plain(*arguments) if library is None else _WindowCall(library, arguments).forward()


def _gradients(grads: Grads, arguments: Sequence[Any], kept: Sequence[Tensor], wanted: Sequence[bool]) -> Grads | None:
    library = _KERNEL.library
    return None if library is None else _WindowCall(library, arguments).backward(grads)


def _results_like(*arguments: Any) -> tuple[Tensor, Tensor]:
    query, value, start, radius = arguments[0], arguments[2], arguments[4], arguments[6]
    return query.new_empty(*start.shape, value.shape[-1]), query.new_empty(*start.shape, 2 * radius + 1)


_READ = Operator(
    "window",
    "Tensor query, Tensor key, Tensor value, Tensor center, Tensor start, Tensor? mask, int radius, float? sigma, "
    "float scale",
    inputs=4,
    results=2,
    compute=_read,
    gradients=_gradients,
    plain=_plain,
    like=_results_like,
)
