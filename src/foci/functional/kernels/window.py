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
import math
from typing import Any

import torch
from torch import Tensor

from foci.errors import ShapeError
from foci.functional import window_plain
from foci.functional.kernels.build import Kernel
from foci.functional.kernels.decomposition_table import decompose
from foci.functional.kernels.gradients import differentiate, plain_gradients
from foci.functional.window_plain import LocalWindow
from foci.tracing import is_traced, is_watched

_THREAD_CELLS = 1 << 17
"""Multiplications per additional thread, below which starting it costs more than it saves."""

_Gradients = tuple[Tensor, Tensor, Tensor, Tensor]


def read_dots(query: Tensor, key: Tensor, value: Tensor, window: LocalWindow, scale: float) -> tuple[Tensor, Tensor]:
    """Return output ``(B, L, V)`` and weights ``(B, L, W)`` of a softmax over ``scale · q · k``."""
    if not _suits_kernel(query, key, value):
        return window_plain.read_dots(query, key, value, window, scale)
    traced = is_traced()
    if not traced and (is_watched(query, key, value, window.center) or _KERNEL.library is None):
        return window_plain.read_dots(query, key, value, window, scale)
    batch = window.center.shape[0]
    dtype = query.dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    query, key, value = (tensor.to(wide).expand(batch, -1, -1) for tensor in (query, key, value))
    arguments = (query, key, value, *window, scale)
    if traced:
        output, weights = _read_op(*arguments)
    elif _wants_gradient(query, key, value, window):
        output, weights = _Read.apply(*arguments)  # type: ignore[no-untyped-call]
    else:
        output, weights = _read(*arguments)
    return output.to(dtype), weights.to(dtype)


# --- choosing a path


def _suits_kernel(query: Tensor, key: Tensor, value: Tensor) -> bool:
    if query.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    served = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    return query.dtype in served and query.dtype == key.dtype == value.dtype


def _wants_gradient(query: Tensor, key: Tensor, value: Tensor, window: LocalWindow) -> bool:
    if not torch.is_grad_enabled():
        return False
    return query.requires_grad or key.requires_grad or value.requires_grad or window.center.requires_grad


def _plain(arguments: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    query, key, value, *window, scale = arguments
    return window_plain.read_dots(query, key, value, LocalWindow(*window), scale)


def _plain_gradients(grads: tuple[Tensor | None, Tensor | None], arguments: tuple[Any, ...]) -> _Gradients:
    """Return the gradients of the plain path."""
    q, k, v, c = plain_gradients(lambda *four: _plain((*four, *arguments[4:])), arguments[:4], grads)
    return q, k, v, c


# --- the compiled path

_ADDRESS, _SIZE = ctypes.c_void_p, ctypes.c_int64


class _Arguments(ctypes.Structure):
    """``Arguments`` of window.cpp."""

    _fields_ = (
        *((name, kind) for part in ("query", "key", "value") for name, kind in (
            (part, _ADDRESS), (f"{part}_batch", _SIZE), (f"{part}_row", _SIZE)
        )),
        ("mask", _ADDRESS), ("mask_batch", _SIZE), ("mask_row", _SIZE), ("mask_cell", _SIZE),
        ("center", _ADDRESS), ("start", _ADDRESS),
        *((name, _SIZE) for name in (
            "B", "L", "S", "D", "V", "radius", "gaussian", "double_numbers", "double_positions"
        )),
        ("spread", ctypes.c_double), ("scale", ctypes.c_double),
    )  # fmt: skip


class _WindowCall:
    """One call of the library."""

    def __init__(self, library: ctypes.CDLL, arguments: tuple[Any, ...]) -> None:
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
        self.arguments = _Arguments(
            *(number for one in rows for number in (one.data_ptr(), one.stride(0), one.stride(1))),
            *((None, 0, 0, 0) if mask is None else (mask.data_ptr(), *mask.stride())),
            *(one.data_ptr() for one in self._parts[3:5]),
            B, L, S, D, V, radius,
            sigma is not None, query.dtype == torch.float64, center.dtype == torch.float64,
            0.0 if sigma is None else 2 * sigma**2, scale,
        )  # fmt: skip
        self._width = 2 * radius + 1
        work = B * L * self._width * (D + V)
        self._threads = min(torch.get_num_threads(), 1 + work // _THREAD_CELLS)

    def forward(self) -> tuple[Tensor, Tensor]:
        query, value, start = self._parts[0], self._parts[2], self._parts[4]
        output = query.new_empty(*start.shape, value.shape[-1])
        weights = query.new_empty(*start.shape, self._width)
        self._library.foci_window_forward(
            ctypes.byref(self.arguments), output.data_ptr(), weights.data_ptr(), self._threads
        )
        return output, weights

    def backward(self, grads: tuple[Tensor | None, Tensor | None]) -> _Gradients:
        query, key, value, center, start, _ = self._parts
        known = [None if grad is None else grad.contiguous() for grad in grads]
        q, k, v, c = (tensor.new_empty(tensor.shape) for tensor in (query, key, value, center))
        scratch = query.new_empty(self._library.foci_window_scratch(*start.shape, self._width, self._threads))
        self._library.foci_window_backward(
            ctypes.byref(self.arguments),
            *(None if grad is None else grad.data_ptr() for grad in known),
            *(tensor.data_ptr() for tensor in (scratch, q, k, v, c)),
            self._threads,
        )
        return q, k, v, c


def _self_check(library: ctypes.CDLL) -> bool:
    """Declare the signatures, and compare two windows with the plain path; 11 entries fill a vector and a rest."""
    library.foci_window_forward.argtypes = [ctypes.POINTER(_Arguments), _ADDRESS, _ADDRESS, ctypes.c_int]
    library.foci_window_backward.argtypes = [ctypes.POINTER(_Arguments), *[_ADDRESS] * 7, ctypes.c_int]
    library.foci_window_scratch.argtypes = [_SIZE, _SIZE, _SIZE, ctypes.c_int]
    library.foci_window_forward.restype = library.foci_window_backward.restype = None
    library.foci_window_scratch.restype = _SIZE
    # No random numbers: the state of the user's generator stays unchanged.
    flat = torch.tensor([math.sin(n * n) for n in range(2 * 11 + 4 * 11 + 4 * 13)], dtype=torch.float64, device="cpu")
    query, key, value = flat[:22].view(1, 2, 11), flat[22:66].view(1, 4, 11), flat[66:].view(1, 4, 13)
    center = torch.tensor([[0.25, 2.0]], dtype=torch.float64, device="cpu")
    start = torch.tensor([[0, 1]], device="cpu")
    mask = torch.tensor([[[True, True, True, False]]], device="cpu")
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        for sigma in (None, 0.5):
            exact = (query, key, value, center, start, mask, 1, sigma, 0.5)
            wanted = [*_plain(exact), *_plain_gradients((value[:, :2], key[:, :2, :3]), exact)]
            call = _WindowCall(library, (*(one.to(dtype) for one in exact[:4]), *exact[4:]))
            got = [*call.forward(), *call.backward((value[:, :2].to(dtype), key[:, :2, :3].to(dtype)))]
            if not all(bool(((one - other).abs() < tolerance).all()) for one, other in zip(got, wanted)):
                return False
    return True


_KERNEL = Kernel("window", _self_check)


# --- both paths as one function and its gradients; these are also the operators that tracers see
#
# Every argument list ends with query, key, value, the five fields of the window, and the scale.


def _read(*arguments: Any) -> tuple[Tensor, Tensor]:
    library = _KERNEL.library
    if library is not None:
        return _WindowCall(library, arguments).forward()
    output, weights = _plain(arguments)
    return output.contiguous(), weights.contiguous()


def _gradients(grad_output: Tensor | None, grad_weights: Tensor | None, *arguments: Any) -> _Gradients:
    library = _KERNEL.library
    if library is not None:
        return _WindowCall(library, arguments).backward((grad_output, grad_weights))
    return _plain_gradients((grad_output, grad_weights), arguments)


def _results_like(*arguments: Any) -> tuple[Tensor, Tensor]:
    query, value, start, radius = arguments[0], arguments[2], arguments[4], arguments[6]
    return query.new_empty(*start.shape, value.shape[-1]), query.new_empty(*start.shape, 2 * radius + 1)


def _gradients_like(grad_output: Tensor | None, grad_weights: Tensor | None, *arguments: Any) -> _Gradients:
    q, k, v, c = (tensor.new_empty(tensor.shape) for tensor in arguments[:4])
    return q, k, v, c


_SCHEMA = (
    "Tensor query, Tensor key, Tensor value, Tensor center, Tensor start, Tensor? mask, int radius, float? sigma, "
    "float scale"
)
_read_op = torch.library.custom_op("foci::window", _read, mutates_args=(), schema=f"({_SCHEMA}) -> (Tensor, Tensor)")
_gradients_op = torch.library.custom_op(
    "foci::window_gradients",
    _gradients,
    mutates_args=(),
    schema=f"(Tensor? grad_output, Tensor? grad_weights, {_SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor)",
)
_read_op.register_fake(_results_like)
_gradients_op.register_fake(_gradients_like)


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        _Read.keep(ctx, arguments, ())
        return _read(*arguments)

    # Not setup_context: torch would inspect forward's signature at every call.
    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:6])
        ctx.numbers = inputs[6:]
        ctx.set_materialize_grads(False)  # otherwise torch allocates zeros for weights that are not used

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor | None, grad_weights: Tensor | None) -> tuple[Any, ...]:
        nothing = (None,) * len(ctx.needs_input_grad)
        if grad_output is None and grad_weights is None:  # zeros, by torch's convention
            return nothing
        arguments = (*ctx.saved_tensors, *ctx.numbers)
        if torch.is_grad_enabled():  # create_graph=True: the gradients themselves are differentiated
            found = differentiate(
                lambda *four: _plain((*four, *arguments[4:])),
                arguments[:4],
                (grad_output, grad_weights),
                create_graph=True,
            )
        else:
            found = (_gradients_op if is_traced() else _gradients)(grad_output, grad_weights, *arguments)
        return *found, *nothing[4:]


_read_op.register_autograd(_Read.backward, setup_context=_Read.keep)


decompose("window", lambda *arguments: _plain(arguments))
decompose("window_gradients", lambda output, weights, *arguments: _plain_gradients((output, weights), arguments))
