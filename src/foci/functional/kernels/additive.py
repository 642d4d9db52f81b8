"""Additive scores without the B×L×S×A tensor, forward and backward.

    s_ij = vᵀ tanh(q_i + k_j) = Σ_a v_a (1 − 2 r_ija),    r_ija = 1 / (1 + e^{2 q_ia} · e^{2 k_ja})
    ∂s_ij/∂q_ia = ∂s_ij/∂k_ja = 4 v_a (r − r²),           ∂s_ij/∂v_a = 1 − 2 r

The exponentials are computed once per query and per key, so an entry costs a division instead of a tanh, and the
backward computes the entries again instead of keeping them. Three paths compute the same scores:

- compiled: ``additive.cpp``, for float32, bfloat16 and float16 on a CPU;
- chunked: torch operations on a piece of the entries at a time, where there is no compiler, in float64, and on
  other devices;
- plain: ``tanh(q + k) @ v`` itself, for small problems, where it is the fastest, and wherever something other than
  eager autograd is active (functional transforms, tensor subclasses, tracing).

Accuracy: r is rounded to float32, so tanh has an absolute error of about 1e-7, where `torch.tanh`'s error shrinks
with its value. Scores are within 1e-7 · Σ|v_a| of the exact ones, which is the plain form's own error unless all
arguments of tanh are tiny; gradients are within a few roundings of the plain form's. Where a query or key entry is
beyond ±40, so that its exponential would overflow float32, the entries are computed from the sum q + k instead.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from foci.errors import ShapeError
from foci.functional.kernels.kernel import ADDRESS, COUNT, SIZE, Kernel, run, threads
from foci.functional.kernels.operators import Grads, Operator, compiled_or_plain, register
from foci.functional.kernels.self_check import agrees, numbers_for
from foci.tracing import is_traced, is_watched

SMALL = 1 << 12
"""Entries below which the plain form is the fastest."""

_THREAD_ENTRIES = 1 << 17
"""Entries per additional thread, below which starting it costs more than it saves."""

_CHUNK = 1 << 20
"""Entries that the chunked path computes at a time per thread: 4 MB in float32, which fit a processor's cache."""

_DEVICE_CHUNK = 1 << 26
"""The same on other devices, which need more work at a time."""

_LARGEST = 40.0
"""Beyond it e^{2x}, or its product with another, may overflow float32."""

_Sizes = tuple[int, int, int, int]


def additive_scores(
    query: Float[Tensor, "... L A"],
    key: Float[Tensor, "... S A"],
    vector: Float[Tensor, " A"],
    key_exp: Float[Tensor, "... S W"] | None = None,
) -> Float[Tensor, "... L S"]:
    """Return ``vectorᵀ tanh(query_i + key_j)``; leading axes broadcast.

    ``key_exp`` is the result of `prepare_key` for the same key: a decoder that attends to the same keys at every step
    computes their exponentials once. It is a constant; gradients flow to ``key`` with or without it.
    """
    sizes, key_sizes = query.shape, key.shape  # each look at a shape takes as long as two lines of Python
    if not sizes[-1] == key_sizes[-1] == vector.shape[0]:  # compiled code would read past the end
        raise ShapeError(
            f"additive: query {tuple(sizes)}, key {tuple(key_sizes)} and vector {tuple(vector.shape)} do not fit"
            ", expected (…, query, size), (…, key, size) and (size,)."
        )
    if is_traced():
        # Tracers see one operator for all sizes; on other devices the compiler fuses the plain form itself.
        on_cpu = query.device.type == "cpu"
        scores = _SCORES.traced(query, key, vector, key_exp) if on_cpu else _plain(query, key, vector)
    elif _is_small(query, key, vector, sizes, key_sizes) or is_watched(query, key, vector):
        if len(sizes) == len(key_sizes) and sizes[-2] == 1:  # a step: the sums need no axis of their own
            return ((query + key).tanh_() @ vector).unsqueeze(-2)
        return _plain(query, key, vector)
    else:
        scores = _SCORES(query, key, vector, key_exp)
    if torch.is_autocast_enabled(query.device.type):  # the plain form ends in a matmul, which autocast lowers
        scores = scores.to(torch.get_autocast_dtype(query.device.type))
    return scores


def prepare_key(key: Float[Tensor, "... S A"]) -> Float[Tensor, "... S W"] | None:
    """Return the keys' exponentials for `additive_scores`, or None where its path does not need them.

    An opaque float32 tensor with the key's leading axes and rows, so it can be indexed and reordered along with
    the key. It takes no part in autograd.
    """
    with torch.no_grad():
        if is_traced():
            return _prepare_op(key) if _KERNEL.suits(key) else None
        library = None if is_watched(key) else _KERNEL.library_for(key)
        return None if library is None else _compiled_prepare(library, key)


# --- choosing a path


def _is_small(query: Tensor, key: Tensor, vector: Tensor, sizes: torch.Size, key_sizes: torch.Size) -> bool:
    if query.numel() * key_sizes[-2] < SMALL and sizes[:-2] == key_sizes[:-2]:
        return True
    if query.is_meta:  # sizes alone: nothing is computed
        return True
    # Without the kernel, the shared exponentials save nothing for one or two queries.
    return min(sizes[-2], key_sizes[-2]) <= 2 and _KERNEL.library_for(query, key, vector) is None


def _plain(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    sums = query.unsqueeze(-2) + key.unsqueeze(-3)
    # In their own memory, but for exported programs, whose decompositions allow no change in place.
    return (sums.tanh() if is_traced() else sums.tanh_()) @ vector


# --- one forward and one backward over all paths; both give tensors of their arguments' dtypes


def _forward(query: Tensor, key: Tensor, vector: Tensor, key_exp: Tensor | None) -> Tensor:
    leading, q, k, v = _flatten(query, key, vector)
    library = _KERNEL.library_for(query, key, vector)
    if library is not None:
        scores = _compiled_forward(library, q, k, v, _flatten_prepared(key_exp, leading, k))
    else:
        scores = _chunked_forward(q, k, v)
    scores = scores if len(leading) == 1 else scores.view(*leading, *scores.shape[1:])
    return _to(scores, _common_dtype(query, key, vector))


def _backward(
    grads: Grads, arguments: Sequence[Any], kept: Sequence[Tensor], wanted: Sequence[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    (grad,), (query, key, vector, key_exp) = grads, arguments
    leading, q, k, v = _flatten(query, key, vector)
    library = _KERNEL.library_for(query, key, vector)
    if grad is None or q.numel() == 0 or k.numel() == 0:  # no entries to sum
        dq, dk, dv = q.new_zeros(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape)
    else:
        g = _to(grad, q.dtype).reshape(q.shape[0], q.shape[1], k.shape[1])
        if library is None:
            dq, dk, dv = _chunked_backward(g, q, k, v)
        else:
            dq, dk, dv = _compiled_backward(library, g, q, k, v, _flatten_prepared(key_exp, leading, k))
    return _like(dq, query, leading), _like(dk, key, leading), _to(dv, vector.dtype)


def _common_dtype(query: Tensor, key: Tensor, vector: Tensor) -> torch.dtype:
    if query.dtype == key.dtype == vector.dtype:
        return query.dtype
    return torch.promote_types(torch.promote_types(query.dtype, key.dtype), vector.dtype)


def _common_leading(query: Tensor, key: Tensor) -> torch.Size:
    leading = query.shape[:-2]
    return leading if leading == key.shape[:-2] else torch.broadcast_shapes(leading, key.shape[:-2])


def _flatten(query: Tensor, key: Tensor, vector: Tensor) -> tuple[torch.Size, Tensor, Tensor, Tensor]:
    """Return the leading axes, and ``(B, L, A)``, ``(B, S, A)`` and ``(A,)`` in the dtype to compute in."""
    leading = _common_leading(query, key)
    double = _common_dtype(query, key, vector) == torch.float64
    dtype = torch.float64 if double else torch.float32
    return leading, _flat(_to(query, dtype), leading), _flat(_to(key, dtype), leading), _to(vector, dtype)


def _flat(tensor: Tensor, leading: torch.Size) -> Tensor:
    if tensor.dim() != 3 or tensor.shape[:1] != leading:
        rows, size = tensor.shape[-2:]
        tensor = tensor.expand(*leading, rows, size).reshape(math.prod(leading), rows, size)
    # A batch stride of 0, from broadcasting, is allowed; the kernels need the entries of a row to be contiguous.
    return tensor if tensor.stride(2) == 1 else tensor.contiguous()


def _like(gradient: Tensor, tensor: Tensor, leading: torch.Size) -> Tensor:
    """Return the gradient ``(B, rows, A)`` in the shape and dtype of its tensor: summed over broadcast axes."""
    if gradient.shape != tensor.shape:
        gradient = gradient.view(*leading, *gradient.shape[1:]).sum_to_size(tensor.shape)
    return _to(gradient, tensor.dtype)


def _to(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _flatten_prepared(key_exp: Tensor | None, leading: torch.Size, key: Tensor) -> Tensor | None:
    if key_exp is None:
        return None
    S, width = key.shape[1], _width(key.shape[2])
    if key_exp.shape[-2:] != (S, width) or key_exp.dtype != torch.float32 or key_exp.device != key.device:
        raise ShapeError(
            f"additive: key_exp has shape {tuple(key_exp.shape)} and dtype {key_exp.dtype} on {key_exp.device}, "
            f"expected (…, {S}, {width}) in float32 on {key.device}. Make it with prepare_key(key)."
        )
    rows = _flat(key_exp, leading)
    return rows if rows.stride(1) == width else rows.contiguous()


# --- the chunked path


def _chunks(sizes: _Sizes, budget: int) -> Iterator[tuple[slice, slice, slice]]:
    """Yield slices of batch, queries and keys with at most ``budget`` entries each, or a single row."""
    B, L, S, A = sizes
    keys = min(S, max(1, budget // max(A, 1)))
    queries = min(L, max(1, budget // max(A * keys, 1)))
    rows = min(B, max(1, budget // max(A * keys * queries, 1)))
    for b in range(0, B, max(rows, 1)):
        for i in range(0, L, max(queries, 1)):
            for j in range(0, S, max(keys, 1)):
                yield slice(b, b + rows), slice(i, i + queries), slice(j, j + keys)


class _Tanh:
    """Computes tanh(q + k) for one chunk after another, in one buffer."""

    def __init__(self, query: Tensor, key: Tensor) -> None:
        on_cpu = query.device.type == "cpu"
        # On other devices the check would synchronize, and tanh is cheap there.
        self._by_exponentials = on_cpu and bool(_within_limit(query) and _within_limit(key))
        self._query = query.mul(2).exp_() if self._by_exponentials else query
        self._key = key.mul(2).exp_() if self._by_exponentials else key
        self._one = query.new_ones(())
        sizes = (*query.shape[:2], *key.shape[1:])
        budget = _CHUNK * min(torch.get_num_threads(), 8) if on_cpu else _DEVICE_CHUNK
        self._buffer = query.new_empty(max(query.shape[2], min(math.prod(sizes), budget)))
        self.chunks = _chunks(sizes, budget)

    def __call__(self, b: slice, i: slice, j: slice) -> Tensor:
        query, key = self._query[b, i].unsqueeze(2), self._key[b, j].unsqueeze(1)
        shape = (query.shape[0], query.shape[1], key.shape[2], key.shape[3])
        entries = self._buffer[: math.prod(shape)].view(shape)
        if not self._by_exponentials:
            return torch.add(query, key, out=entries).tanh_()
        torch.addcmul(self._one, query, key, out=entries).reciprocal_()
        return torch.sub(self._one, entries, alpha=2, out=entries)


def _within_limit(tensor: Tensor) -> Tensor:
    return (tensor.abs() <= _LARGEST).all()


def _chunked_forward(query: Tensor, key: Tensor, vector: Tensor) -> Tensor:
    with torch.autocast(query.device.type, enabled=False):
        tanh = _Tanh(query, key)
        scores = query.new_empty(query.shape[0], query.shape[1], key.shape[1])
        for b, i, j in tanh.chunks:
            scores[b, i, j] = tanh(b, i, j) @ vector
        return scores


def _chunked_backward(grad: Tensor, query: Tensor, key: Tensor, vector: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    with torch.autocast(query.device.type, enabled=False):
        tanh = _Tanh(query, key)
        dq = torch.zeros_like(query, memory_format=torch.contiguous_format)
        dk = torch.zeros_like(key, memory_format=torch.contiguous_format)
        dv, one = torch.zeros_like(vector), query.new_ones(())
        for b, i, j in tanh.chunks:
            entries, g = tanh(b, i, j), grad[b, i, j]
            dv += g.reshape(-1) @ entries.flatten(0, 2)
            torch.addcmul(one, entries, entries, value=-1, out=entries).mul_(g.unsqueeze(-1))
            dq[b, i] += entries.sum(dim=2)
            dk[b, j] += entries.sum(dim=1)
        return dq.mul_(vector), dk.mul_(vector), dv


# --- the compiled path

_TENSOR = [ADDRESS, SIZE, SIZE]  # an address, the stride between batches, the stride between rows
_PREPARED = [ADDRESS, SIZE]
_FUNCTIONS = {
    "forward_scratch": (SIZE, [SIZE, SIZE, SIZE, COUNT]),
    "backward_scratch": (SIZE, [SIZE, SIZE, SIZE, COUNT]),
    "prepare": (None, [*_TENSOR, SIZE, SIZE, SIZE, ADDRESS, COUNT]),
    "forward": (None, [*_TENSOR, *_TENSOR, *_PREPARED, ADDRESS, *[SIZE] * 4, ADDRESS, ADDRESS, COUNT]),
    "backward": (None, [ADDRESS, *_TENSOR, *_TENSOR, *_PREPARED, ADDRESS, *[SIZE] * 4, *[ADDRESS] * 4, COUNT]),
}


def _strided(tensor: Tensor) -> tuple[Tensor, int, int]:
    return tensor, tensor.stride(0), tensor.stride(1)


def _width(size: int) -> int:
    """Return the length of a prepared row: e^{2x}, zeros up to whole cache lines, and one line to mark wild rows."""
    return (size + 15) // 16 * 16 + 16


def _torch_prepare(key: Tensor) -> Tensor:
    size = key.shape[-1]
    exponentials = key.float().mul(2).exp()
    wild = ~(key.abs() <= _LARGEST).all(dim=-1, keepdim=True)
    return torch.cat([pad(exponentials, (0, _width(size) - 16 - size)), pad(wild.float(), (0, 15))], dim=-1)


def _compiled_prepare(library: ctypes.CDLL, key: Tensor) -> Tensor:
    flat = _flat(key.float(), key.shape[:-2])
    B, S, A = flat.shape
    rows = flat.new_empty(*key.shape[:-1], _width(A))
    run(library.foci_additive_prepare, *_strided(flat), B, S, A, rows, threads(4 * flat.numel(), _THREAD_ENTRIES))
    return rows


def _compiled_forward(library: ctypes.CDLL, query: Tensor, key: Tensor, vector: Tensor, rows: Tensor | None) -> Tensor:
    (B, L, A), S = query.shape, key.shape[1]
    count = threads(B * L * S * A, _THREAD_ENTRIES)
    scores = query.new_empty(B, L, S)
    scratch = query.new_empty(library.foci_additive_forward_scratch(L, S, A, count))
    given = (*_strided(query), *_strided(key), rows, 0 if rows is None else rows.stride(0), vector.contiguous())
    run(library.foci_additive_forward, *given, B, L, S, A, scratch, scores, count)
    return scores


def _compiled_backward(
    library: ctypes.CDLL, grad: Tensor, query: Tensor, key: Tensor, vector: Tensor, rows: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    (B, L, A), S = query.shape, key.shape[1]
    count = threads(B * L * S * A, _THREAD_ENTRIES)
    dq, dk, dv = query.new_empty(B, L, A), query.new_empty(B, S, A), query.new_empty(A)
    scratch = query.new_empty(library.foci_additive_backward_scratch(B, L, A, count))
    given = (*_strided(query), *_strided(key), rows, 0 if rows is None else rows.stride(0), vector.contiguous())
    run(library.foci_additive_backward, grad.contiguous(), *given, B, L, S, A, scratch, dq, dk, dv, count)
    return dq, dk, dv


def _self_check(library: ctypes.CDLL) -> bool:
    """Compare two queries and three keys with the equation; 19 entries fill vectors and a rest."""

    def fits(large: float, prepared: bool) -> bool:
        query, key, vector = numbers_for((1, 2, 19), (1, 3, 19), (19,))
        query[0, 0, 0], key[0, 0, 0] = large, 0.5 - large

        def compiled(arguments: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[list[Tensor], Grads]:
            query, key, vector = arguments
            rows = _compiled_prepare(library, key) if prepared else None
            scores = _compiled_forward(library, query, key, vector, rows)
            return [scores], _compiled_backward(library, grads[0], query, key, vector, rows)

        return agrees(_plain, compiled, (query, key, vector), {torch.float32: 1e-5})

    # Fast entries, then exact ones.
    return all(fits(large, prepared) for large in (0.0, 100.0) for prepared in (False, True))


_KERNEL = Kernel("additive", _FUNCTIONS, _self_check, (torch.float32, torch.bfloat16, torch.float16))


# --- the operators


def _scores_like(query: Tensor, key: Tensor, vector: Tensor, key_exp: Tensor | None) -> Tensor:
    leading = _common_leading(query, key)
    return query.new_empty((*leading, query.shape[-2], key.shape[-2]), dtype=_common_dtype(query, key, vector))


def _rows_like(key: Tensor) -> Tensor:
    return key.new_empty((*key.shape[:-1], _width(key.shape[-1])), dtype=torch.float32)


def _plain_scores(query: Tensor, key: Tensor, vector: Tensor, key_exp: Tensor | None) -> Tensor:
    dtype = _common_dtype(query, key, vector)
    wide = torch.promote_types(dtype, torch.float32)
    return _plain(*(tensor.to(wide) for tensor in (query, key, vector))).to(dtype)


_SCORES = Operator(
    "additive",
    "Tensor query, Tensor key, Tensor vector, Tensor? key_exp",
    inputs=3,
    compute=_forward,
    gradients=_backward,
    plain=_plain_scores,
    like=_scores_like,
)
_prepare = compiled_or_plain(_KERNEL.library_for, _compiled_prepare, _torch_prepare)
_prepare_op = register("additive_prepare", "(Tensor key) -> Tensor", _prepare, _rows_like, _torch_prepare)
