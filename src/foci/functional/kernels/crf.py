"""The linear-chain CRF without the B×T×K² tensor: log Z and log p(tags), marginals, the k best, gradients, and spans.

    ∂ log Z/∂emissions[t, j] = p(y_t = j),    ∂ log Z/∂transitions[i, j] = Σ_t p(y_t = i, y_t+1 = j)

``crf.cpp`` computes them for float32 and float64 on a CPU; a backward pass keeps only B·T·K numbers. Without a
compiler, on other devices, and wherever something other than eager autograd is active (functional transforms, tensor
subclasses), `foci.functional.crf.chain_plain` computes the same in plain torch. Tracers see one operator for any
number of steps.

Accuracy: the kernel computes in double and rounds the result, so that in float32 everything is exact but for the
last bit: at T = 1000 and K = 20 marginals have an error of 3e-8, where plain float32, which rounds at every step, has
1e-4 to 1e-3, and log Z one of 1e-4 (of 3500), where plain float32 has 1e-3. In float64 both have the same error.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from foci.errors import ShapeError
from foci.functional.crf import chain_plain as crf_plain
from foci.functional.crf import spans_plain as crf_spans_plain
from foci.functional.crf.chain_plain import Chain
from foci.functional.crf.spans_plain import SpanMessages, SpanTags, SpanTerms
from foci.functional.kernels.build import Kernel
from foci.functional.kernels.decomposition_table import decompose
from foci.functional.kernels.gradients import differentiate, plain_gradients
from foci.tracing import is_traced, is_watched

_THREAD_CELLS = 1 << 17
"""Transitions per additional thread, below which starting it costs more than it saves."""

_LANES = 4
"""``crf.cpp`` pads the number of tags to a multiple of this."""

_Gradients = tuple[Tensor, Tensor, Tensor, Tensor]


def total(chain: Chain, tags: Tensor | None) -> Tensor:
    """Return ``log Z (B,)``, or ``log p(tags)`` of ``tags (B, T)``, int64; see `crf_plain.total`."""
    differentiable = _wants_gradient(chain)
    if is_traced():
        totals: Tensor = _total_op(*chain, tags, differentiable)[0]
        return totals
    if _library_for(chain) is None:
        return crf_plain.total(chain, tags)
    if differentiable:
        return _Total.apply(*chain, tags, True)[0]  # type: ignore[no-untyped-call, no-any-return]
    return _total(*chain, tags, False)[0]


def marginals(chain: Chain) -> Tensor:
    """Return ``p(y_t = tag)``, ``(B, T, K)``; see `crf_plain.marginals`."""
    if is_traced():
        shares: Tensor = _marginals_op(*chain)[0]
        return shares
    if _library_for(chain) is None:
        return crf_plain.marginals(chain)
    if _wants_gradient(chain):
        return _Marginals.apply(*chain)[0]  # type: ignore[no-untyped-call, no-any-return]
    return _marginals(*chain)[0]


def best(chain: Chain, k: int) -> tuple[Tensor, Tensor]:
    """Return the tags ``(B, k, T)`` and scores ``(B, k)`` of the k best sequences; see `crf_plain.best`."""
    if is_traced():
        scores, tags = _best_op(*chain, k)
    elif _library_for(chain) is None:
        return crf_plain.best(chain, k)
    elif _wants_gradient(chain):
        scores, tags = _Best.apply(*chain, k)  # type: ignore[no-untyped-call]
    else:
        scores, tags = _best(*chain, k)
    return tags, scores


def span_messages(chain: Chain, tags: SpanTags) -> SpanMessages:
    """Return what may come before and after the spans of each step and label; see `crf_spans_plain.messages`."""
    library = None if is_traced() else _library_for(chain)
    return crf_spans_plain.messages(chain, tags) if library is None else _compiled_messages(library, chain, tags)


def every_span(spans: SpanTerms, width: int) -> Tensor:
    """Return the log-probabilities of all spans of up to ``width`` steps; see `crf_spans_plain.every_span`."""
    messages = spans.messages
    usable = messages.opened.device.type == "cpu" and not (is_traced() or is_watched(messages.opened, spans.exists))
    library = _KERNEL.library if usable else None
    return crf_spans_plain.every_span(spans, width) if library is None else _compiled_every(library, spans, width)


# --- choosing a path


def _wants_gradient(chain: Chain) -> bool:
    return torch.is_grad_enabled() and any(scores.requires_grad for scores in chain[:4])


def _library_for(chain: Chain) -> ctypes.CDLL | None:
    """Return the compiled kernel, if it supports this chain and is active."""
    if chain.emissions.device.type != "cpu" or chain.emissions.dtype not in (torch.float32, torch.float64):
        return None
    return None if is_watched(*(part for part in chain if part is not None)) else _KERNEL.library


def _plain_gradients(compute: Callable[[Chain], Tensor], chain: Chain, grad: Tensor) -> _Gradients:
    """Return the gradients of the plain path."""
    e, t, s, d = plain_gradients(lambda e, t, s, d: compute(Chain(e, t, s, d, chain.mask)), chain[:4], (grad,))
    return e, t, s, d


# --- the compiled path

_ADDRESS, _SIZE, _COUNT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_CHAIN = [*[_ADDRESS] * 5, *[_SIZE] * 3]
_SIGNATURES = {
    "total": [*_CHAIN, *[_ADDRESS] * 5, _COUNT],
    "gradients": [*_CHAIN, *[_ADDRESS] * 9, _COUNT],
    "marginal_gradients": [*_CHAIN, *[_ADDRESS] * 8, _COUNT],
    "decode": [*_CHAIN, _SIZE, *[_ADDRESS] * 3, _COUNT],
    "sequence_gradients": [*_CHAIN, _SIZE, *[_ADDRESS] * 7, _COUNT],
    "span_messages": [*_CHAIN, _SIZE, *[_ADDRESS] * 4, _COUNT],
}


class _ChainCall:
    """One call of the library on a chain."""

    def __init__(self, library: ctypes.CDLL, chain: Chain, k: int = 0) -> None:
        self._library = library
        self._suffix = "float64" if chain.emissions.dtype == torch.float64 else "float32"
        self._parts = [None if part is None else part.contiguous() for part in chain]  # kept alive during the call
        self._sizes = tuple(chain.emissions.shape)
        batch, steps, tags = self._sizes
        shapes = [self._sizes, (tags, tags), (tags,), (tags,), (batch, steps)]
        for name, part, shape in zip(Chain._fields, chain, shapes):
            dtype = torch.bool if name == "mask" else chain.emissions.dtype
            # Compiled code would read past the end.
            if part is not None and (part.shape != shape or part.dtype != dtype):
                raise ShapeError(
                    f"crf: {name} has shape {tuple(part.shape)} and {part.dtype}, expected {shape}, {dtype}."
                )
        cells = batch * steps * tags * tags
        self.threads = min(torch.get_num_threads(), 1 + cells // _THREAD_CELLS, max(batch, 1))
        room = library.foci_crf_scratch(batch, steps, tags, k, self.threads)
        self.scratch = chain.emissions.new_empty(room, dtype=torch.float64)

    def __call__(self, name: str, *arguments: Tensor | int | None) -> int | None:
        """Call ``foci_crf_name`` and return its result; tensors, also those it writes to, are contiguous."""
        function = getattr(self._library, f"foci_crf_{name}_{self._suffix}")
        everything = (*self._parts, *self._sizes, *arguments)
        answer: int | None = function(
            *(one.data_ptr() if isinstance(one, Tensor) else one for one in everything), self.threads
        )
        return answer

    def gradients(self, name: str, *arguments: Tensor | int | None) -> _Gradients:
        """Call a function that writes the gradients of emissions, transitions, start and end; return them."""
        e, t, s, d = (torch.empty_like(part) for part in self._parts[:4] if part is not None)
        known = [one.contiguous() if isinstance(one, Tensor) else one for one in arguments]
        self(name, *known, self.scratch, e, t, s, d)
        return e, t, s, d


def _total_like(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    *parts, _, keep = arguments
    chain = Chain(*parts)
    return chain.emissions.new_empty(chain.emissions.shape[0]), *_room_to_keep(chain, keep)


def _marginals_like(*parts: Any) -> tuple[Tensor, Tensor, Tensor]:
    chain = Chain(*parts)
    return chain.emissions.new_empty(chain.emissions.shape), *_room_to_keep(chain, keep=True)


def _best_like(*arguments: Any) -> tuple[Tensor, Tensor]:
    emissions, k = arguments[0], arguments[5]
    batch, steps, _ = emissions.shape
    return emissions.new_empty(batch, k), emissions.new_empty((batch, k, steps), dtype=torch.int64)


def _room_to_keep(chain: Chain, keep: bool) -> tuple[Tensor, Tensor]:
    """Return empty tensors for the path that each row takes in the kernel and for what the backward pass needs."""
    batch, steps, num_tags = chain.emissions.shape
    width = (num_tags + _LANES - 1) // _LANES * _LANES
    kept = chain.emissions.new_empty((batch, steps if keep else 0, width), dtype=torch.float64)
    return chain.emissions.new_empty(batch, dtype=torch.uint8), kept


def _compiled_total(
    library: ctypes.CDLL, chain: Chain, tags: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    call = _ChainCall(library, chain)
    totals, ways, kept = _total_like(*chain, tags, keep)
    tags = None if tags is None else tags.contiguous()
    if tags is not None and (tags.shape != chain.emissions.shape[:2] or tags.dtype != torch.int64):
        raise ShapeError(
            f"crf: tags has shape {tuple(tags.shape)} and {tags.dtype}, expected (batch, step), torch.int64."
        )
    if call("total", tags, call.scratch, totals, ways, kept if keep else None):
        raise crf_plain.unknown_tags(chain.emissions.shape[-1])
    return totals, ways, kept


def _compiled_marginals(library: ctypes.CDLL, chain: Chain) -> tuple[Tensor, Tensor, Tensor]:
    totals, ways, kept = _compiled_total(library, chain, None, keep=True)
    call, shares = _ChainCall(library, chain), chain.emissions.new_empty(chain.emissions.shape)
    call("gradients", None, torch.ones_like(totals), ways, kept, call.scratch, shares, None, None, None)
    return shares, ways, kept


def _compiled_best(library: ctypes.CDLL, chain: Chain, k: int) -> tuple[Tensor, Tensor]:
    call = _ChainCall(library, chain, k)
    scores, tags = _best_like(*chain, k)
    call("decode", k, call.scratch, scores, tags)
    return scores, tags


def _compiled_messages(library: ctypes.CDLL, chain: Chain, tags: SpanTags) -> SpanMessages:
    batch, steps, num_tags = chain.emissions.shape
    labels = len(tags.single)
    call = _ChainCall(library, chain)
    room = library.foci_crf_span_scratch(steps, num_tags, labels, call.threads)
    scratch, totals, messages = (
        torch.empty(shape, dtype=torch.float64) for shape in ((room,), (batch,), (4, batch, steps, labels))
    )
    numbers = torch.stack([tags.single, tags.first, tags.last, tags.continuing]).long()
    call("span_messages", labels, numbers, scratch, messages, totals)
    opened, alone, closed, closed_alone = messages
    return SpanMessages(opened, alone, closed, closed_alone, totals)


def _compiled_every(library: ctypes.CDLL, spans: SpanTerms, width: int) -> Tensor:
    batch, steps, labels = spans.messages.opened.shape
    threads = min(torch.get_num_threads(), 1 + batch * steps * width * labels // _THREAD_CELLS, max(batch * steps, 1))
    found = torch.empty((batch, steps, width, labels), dtype=torch.float64)
    scratch = torch.empty(threads * labels, dtype=torch.float64)
    messages = torch.stack(spans.messages[:4])
    parts = [messages, spans.inner, spans.last, spans.moves, spans.messages.log_partition, spans.exists]
    read = [part.contiguous() for part in parts]  # kept alive during the call
    addresses = [part.data_ptr() for part in read]
    library.foci_crf_every_span(*addresses, batch, steps, labels, width, scratch.data_ptr(), found.data_ptr(), threads)
    return found


def _self_check(library: ctypes.CDLL) -> bool:
    """Declare the signatures, and compare a chain with all its sequences; 5 tags fill a vector and a rest."""
    library.foci_crf_span_scratch.argtypes = [_SIZE, _SIZE, _SIZE, _COUNT]
    library.foci_crf_span_scratch.restype = _SIZE
    library.foci_crf_every_span.argtypes = [*[_ADDRESS] * 6, *[_SIZE] * 4, *[_ADDRESS] * 2, _COUNT]
    library.foci_crf_every_span.restype = None
    library.foci_crf_scratch.argtypes = [_SIZE, _SIZE, _SIZE, _SIZE, _COUNT]
    library.foci_crf_scratch.restype = _SIZE
    for name, arguments in _SIGNATURES.items():
        for suffix in ("float32", "float64"):
            function = getattr(library, f"foci_crf_{name}_{suffix}")
            function.argtypes = arguments
            function.restype = _SIZE if name == "total" else None
    return all(
        _agrees(library, dtype, spread, tolerance)
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12))
        for spread in (1.0, 400.0)  # by weights, then by scores
    )


def _agrees(library: ctypes.CDLL, dtype: torch.dtype, spread: float, tolerance: float) -> bool:
    # No random numbers: the state of the user's generator stays unchanged.
    numbers = [spread * math.sin(n * n) for n in range(3 * 5 + 5 * 5 + 5 + 5)]
    flat = torch.tensor(numbers, dtype=dtype, device="cpu")
    e, a, s, d = (part.tolist() for part in flat.split([15, 25, 5, 5]))
    chain = Chain(flat[:15].view(1, 3, 5), flat[15:40].view(5, 5), flat[40:45], flat[45:], None)
    scored = sorted(
        ((s[x] + e[x] + a[5 * x + y] + e[5 + y] + a[5 * y + z] + e[10 + z] + d[z], (x, y, z))
         for x, y, z in itertools.product(range(5), repeat=3)),
        reverse=True,
    )  # fmt: skip
    highest = scored[0][0]
    log_z = highest + math.log(sum(math.exp(score - highest) for score, _ in scored))
    counts = [0.0] * len(numbers)
    for score, (x, y, z) in scored:
        for cell in (x, 5 + y, 10 + z, 15 + 5 * x + y, 15 + 5 * y + z, 40 + x, 45 + z):
            counts[cell] += math.exp(score - log_z)

    def close(have: Tensor, want: Sequence[float], room: float) -> bool:
        wanted = torch.tensor(want, dtype=torch.float64, device="cpu")
        return bool(((have.double().flatten() - wanted).abs() <= room).all())

    totals, ways, kept = _compiled_total(library, chain, None, keep=True)
    gradients = _ChainCall(library, chain).gradients("gradients", None, torch.ones_like(totals), ways, kept)
    scores, tags = _compiled_best(library, chain, 2)
    # A span is tag 1, then any number of 2; 2 continues it.
    shares = [0.0] * 9
    for score, sequence in scored:
        for first, last in itertools.combinations_with_replacement(range(3), 2):
            run = (*sequence[first : last + 1], *sequence[last + 1 : last + 2])
            if run[: last - first + 1] == (1, *[2] * (last - first)) and run[last - first + 1 :] != (2,):
                shares[3 * first + last - first] += math.exp(score - log_z)
    begin, inner = torch.tensor([1], device="cpu"), torch.tensor([2], device="cpu")
    of_spans = SpanTags(begin, begin, inner, inner, inner)
    messages = _compiled_messages(library, chain, of_spans)
    spans = _compiled_every(library, crf_spans_plain.terms(chain, of_spans, messages), 3)
    return (
        close(totals, [log_z], tolerance * spread)
        and close(torch.cat([part.flatten() for part in gradients]), counts, tolerance)
        and close(scores, [score for score, _ in scored[:2]], tolerance * spread)
        and tags[0].tolist() == [list(sequence) for _, sequence in scored[:2]]
        and close(spans.exp(), shares, tolerance)
    )


_KERNEL = Kernel("crf", _self_check)


# --- both paths as one function and its gradients; these are also the operators that tracers see
#
# Every argument list begins with the five parts of the chain, every list of results with what is differentiable.


def _nothing_kept(chain: Chain, keep: bool) -> tuple[Tensor, Tensor]:
    """Return zeros in the shapes that the kernel keeps; the plain path keeps nothing."""
    ways, kept = _room_to_keep(chain, keep)
    return torch.zeros_like(ways), torch.zeros_like(kept)


def _total(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    *parts, tags, keep = arguments
    chain = Chain(*parts)
    library = _library_for(chain)
    return _plain_total(*arguments) if library is None else _compiled_total(library, chain, tags, keep)


def _plain_total(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    *parts, tags, keep = arguments
    chain = Chain(*parts)
    return crf_plain.total(chain, tags), *_nothing_kept(chain, keep)


def _total_gradients(grad: Tensor, *arguments: Any) -> _Gradients:
    *parts, tags, ways, kept = arguments
    chain = Chain(*parts)
    library = _library_for(chain)
    if library is None:
        return _plain_total_gradients(grad, *arguments)
    return _ChainCall(library, chain).gradients("gradients", tags, grad, ways, kept)


def _plain_total_gradients(grad: Tensor, *arguments: Any) -> _Gradients:
    *parts, tags, _, _ = arguments
    return _plain_gradients(lambda chain: crf_plain.total(chain, tags), Chain(*parts), grad)


def _marginals(*parts: Any) -> tuple[Tensor, Tensor, Tensor]:
    chain = Chain(*parts)
    library = _library_for(chain)
    return _plain_marginals(*parts) if library is None else _compiled_marginals(library, chain)


def _plain_marginals(*parts: Any) -> tuple[Tensor, Tensor, Tensor]:
    chain = Chain(*parts)
    return crf_plain.marginals(chain).contiguous(), *_nothing_kept(chain, keep=True)


def _marginals_gradients(grad: Tensor, *arguments: Any) -> _Gradients:
    *parts, ways, kept = arguments
    chain = Chain(*parts)
    library = _library_for(chain)
    if library is None:
        return _plain_marginals_gradients(grad, *arguments)
    return _ChainCall(library, chain).gradients("marginal_gradients", grad, ways, kept)


def _plain_marginals_gradients(grad: Tensor, *arguments: Any) -> _Gradients:
    return _plain_gradients(crf_plain.marginals, Chain(*arguments[:5]), grad)


def _best(*arguments: Any) -> tuple[Tensor, Tensor]:
    *parts, k = arguments
    chain = Chain(*parts)
    library = _library_for(chain)
    return _plain_best(*arguments) if library is None else _compiled_best(library, chain, k)


def _plain_best(*arguments: Any) -> tuple[Tensor, Tensor]:
    *parts, k = arguments
    tags, scores = crf_plain.best(Chain(*parts), k)
    return scores.contiguous(), tags.contiguous()


def _best_gradients(grad: Tensor, *arguments: Any) -> _Gradients:
    *parts, tags = arguments
    chain = Chain(*parts)
    library = _library_for(chain)
    if library is None:
        return _plain_best_gradients(grad, *arguments)
    return _ChainCall(library, chain).gradients("sequence_gradients", tags.shape[1], tags, grad)


def _plain_best_gradients(grad: Tensor, *arguments: Any) -> _Gradients:
    *parts, tags = arguments
    return _plain_gradients(lambda chain: crf_plain.best(chain, tags.shape[1])[1], Chain(*parts), grad)


_CHAIN_SCHEMA = "Tensor emissions, Tensor transitions, Tensor start, Tensor end, Tensor? mask"
_GRADIENTS_SCHEMA = "(Tensor, Tensor, Tensor, Tensor)"


def _operator(
    name: str, schema: str, compute: Callable[..., Any], plain: Callable[..., Any], like: Callable[..., Any]
) -> Any:
    """Return the operator ``foci::crf_name``; ``plain`` computes it in plain torch, ``like`` makes empty results."""
    operator = torch.library.custom_op(f"foci::crf_{name}", compute, mutates_args=(), schema=schema)
    operator.register_fake(like)
    decompose(f"crf_{name}", plain)
    return operator


def _gradients_like(grad: Tensor, *arguments: Any) -> _Gradients:
    e, t, s, d = (scores.new_empty(scores.shape) for scores in arguments[:4])
    return e, t, s, d


_total_op = _operator(
    "total",
    f"({_CHAIN_SCHEMA}, Tensor? tags, bool keep) -> (Tensor, Tensor, Tensor)",
    _total,
    _plain_total,
    _total_like,
)
_total_gradients_op = _operator(
    "total_gradients",
    f"(Tensor grad, {_CHAIN_SCHEMA}, Tensor? tags, Tensor ways, Tensor kept) -> {_GRADIENTS_SCHEMA}",
    _total_gradients,
    _plain_total_gradients,
    _gradients_like,
)
_marginals_op = _operator(
    "marginals", f"({_CHAIN_SCHEMA}) -> (Tensor, Tensor, Tensor)", _marginals, _plain_marginals, _marginals_like
)
_marginals_gradients_op = _operator(
    "marginals_gradients",
    f"(Tensor grad, {_CHAIN_SCHEMA}, Tensor ways, Tensor kept) -> {_GRADIENTS_SCHEMA}",
    _marginals_gradients,
    _plain_marginals_gradients,
    _gradients_like,
)
_best_op = _operator("best", f"({_CHAIN_SCHEMA}, int k) -> (Tensor, Tensor)", _best, _plain_best, _best_like)
_best_gradients_op = _operator(
    "best_gradients",
    f"(Tensor grad, {_CHAIN_SCHEMA}, Tensor tags) -> {_GRADIENTS_SCHEMA}",
    _best_gradients,
    _plain_best_gradients,
    _gradients_like,
)


# --- autograd, for eager mode and for the operators


def _save(ctx: Any, kept: Sequence[Any], results: Sequence[Tensor]) -> None:
    ctx.save_for_backward(*kept, *results[1:])
    ctx.mark_non_differentiable(*results[1:])
    ctx.set_materialize_grads(False)  # otherwise torch allocates zeros for the other gradients


def _gradients(
    ctx: Any,
    grad: Tensor | None,
    plain: Callable[[Chain], Tensor],
    eager: Callable[..., Any],
    operator: Callable[..., Any],
) -> tuple[Any, ...]:
    """Return a gradient for each of the forward's arguments; None for all but the chain's scores."""
    arguments = len(ctx.needs_input_grad)
    if grad is None:  # zeros, by torch's convention
        return (None,) * arguments
    saved = ctx.saved_tensors
    if torch.is_grad_enabled():  # create_graph=True
        found = differentiate(
            lambda e, t, s, d: plain(Chain(e, t, s, d, saved[4])), saved[:4], (grad,), create_graph=True
        )
    else:
        found = (operator if is_traced() else eager)(grad, *saved)
    return *found, *[None] * (arguments - 4)


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        results = _total(*arguments)
        _Total.keep(ctx, arguments, results)
        return results

    # Not setup_context: torch would inspect forward's signature at every call, which takes longer than a short
    # chain.
    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _save(ctx, inputs[:6], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *unused: Any) -> tuple[Any, ...]:
        tags = ctx.saved_tensors[5]
        return _gradients(ctx, grad, lambda chain: crf_plain.total(chain, tags), _total_gradients, _total_gradients_op)


class _Marginals(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parts: Any) -> tuple[Tensor, Tensor, Tensor]:
        results = _marginals(*parts)
        _Marginals.keep(ctx, parts, results)
        return results

    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _save(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *unused: Any) -> tuple[Any, ...]:
        return _gradients(ctx, grad, crf_plain.marginals, _marginals_gradients, _marginals_gradients_op)


class _Best(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        results = _best(*arguments)
        _Best.keep(ctx, arguments, results)
        return results

    @staticmethod
    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _save(ctx, inputs[:5], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *unused: Any) -> tuple[Any, ...]:
        k = ctx.saved_tensors[5].shape[1]
        return _gradients(ctx, grad, lambda chain: crf_plain.best(chain, k)[1], _best_gradients, _best_gradients_op)


_total_op.register_autograd(_Total.backward, setup_context=_Total.keep)
_marginals_op.register_autograd(_Marginals.backward, setup_context=_Marginals.keep)
_best_op.register_autograd(_Best.backward, setup_context=_Best.keep)
