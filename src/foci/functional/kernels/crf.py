"""The linear-chain CRF without the B×T×K² tensor: log Z and log p(tags), marginals, the k best, gradients, and spans.

    ∂ log Z/∂emissions[t, j] = p(y_t = j),    ∂ log Z/∂transitions[i, j] = Σ_t p(y_t = i, y_t+1 = j)

``crf.cpp`` computes them for float32 and float64 on a CPU; a backward pass keeps only B·T·K numbers. Without a
compiler, on other devices, and wherever something other than eager autograd is active (functional transforms, tensor
subclasses), `foci.functional.crf.chain_plain` computes the same in plain torch. It also has the gradients of marginals
and of the k best scores, on a CPU in float64. Tracers see one operator for any number of steps.

Accuracy: the kernel computes in double and rounds the result, so that in float32 everything is exact but for the
last bit: at T = 1000 and K = 20 marginals have an error of 3e-8, where plain float32, which rounds at every step, has
1e-4 to 1e-3, and log Z one of 1e-4 (of 3500), where plain float32 has 1e-3. In float64 both have the same error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from foci.errors import ShapeError
from foci.functional.crf import chain_plain as crf_plain
from foci.functional.crf import spans_plain as crf_spans_plain
from foci.functional.crf.chain_plain import Chain
from foci.functional.crf.spans_plain import SpanMessages, SpanTags, SpanTerms
from foci.functional.kernels.gradients import plain_gradients
from foci.functional.kernels.kernel import ADDRESS, COUNT, SIZE, Kernel, in_both_precisions, run, threads
from foci.functional.kernels.operators import Grads, Operator, compiled_or_plain
from foci.functional.kernels.self_check import agrees, are_near, numbers_for
from foci.tracing import is_traced, is_watched

_THREAD_MOVES = 1 << 17
"""Transitions per additional thread, below which starting it costs more than it saves."""

_LANES = 4
"""``crf.cpp`` pads the number of tags to a multiple of this."""


def total(chain: Chain, tags: Tensor | None) -> Tensor:
    """Return ``log Z (B,)``, or ``log p(tags)`` of ``tags (B, T)``, int64; see `crf_plain.total`."""
    if _is_plain(chain):
        return crf_plain.total(chain, tags)
    keep = torch.is_grad_enabled() and any(scores.requires_grad for scores in chain[:4])
    totals: Tensor = _TOTAL(*chain, tags, keep)[0]
    return totals


def marginals(chain: Chain) -> Tensor:
    """Return ``p(y_t = tag)``, ``(B, T, K)``; see `crf_plain.marginals`."""
    shares: Tensor = crf_plain.marginals(chain) if _is_plain(chain) else _MARGINALS(*chain)
    return shares


def best(chain: Chain, k: int) -> tuple[Tensor, Tensor]:
    """Return the tags ``(B, k, T)`` and scores ``(B, k)`` of the k best sequences; see `crf_plain.best`."""
    if _is_plain(chain):
        return crf_plain.best(chain, k)
    scores, tags = _BEST(*chain, k)
    return tags, scores


def span_messages(chain: Chain, tags: SpanTags) -> SpanMessages:
    """Return what may come before and after the spans of each step and label; see `crf_spans_plain.messages`."""
    library = None if is_traced() else _library(*chain)
    return crf_spans_plain.messages(chain, tags) if library is None else _compiled_messages(library, chain, tags)


def every_span(spans: SpanTerms, width: int) -> Tensor:
    """Return the log-probabilities of all spans of up to ``width`` steps; see `crf_spans_plain.every_span`."""
    opened = spans.messages.opened
    library = None if is_traced() or is_watched(opened, spans.exists) else _KERNEL.library_for(opened)
    return crf_spans_plain.every_span(spans, width) if library is None else _compiled_every(library, spans, width)


# --- choosing a path


def _is_plain(chain: Chain) -> bool:
    return not is_traced() and _library(*chain) is None


def _library(*arguments: Any) -> ctypes.CDLL | None:
    """Return the compiled kernel, if it supports the chain that the arguments begin with and is active."""
    watched = is_watched(*(part for part in arguments[:5] if part is not None))
    return None if watched else _KERNEL.library_for(arguments[0])


# --- the compiled path

_CHAIN = [*[ADDRESS] * 5, *[SIZE] * 3]
_FUNCTIONS = {
    "scratch": (SIZE, [SIZE, SIZE, SIZE, SIZE, COUNT]),
    "span_scratch": (SIZE, [SIZE, SIZE, SIZE, COUNT]),
    "every_span": (None, [*[ADDRESS] * 6, *[SIZE] * 4, *[ADDRESS] * 2, COUNT]),
    **in_both_precisions(
        {
            "total": (SIZE, [*_CHAIN, *[ADDRESS] * 5, COUNT]),
            "gradients": (None, [*_CHAIN, *[ADDRESS] * 9, COUNT]),
            "decode": (None, [*_CHAIN, SIZE, *[ADDRESS] * 3, COUNT]),
            "span_messages": (None, [*_CHAIN, SIZE, *[ADDRESS] * 4, COUNT]),
        }
    ),
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
        self.threads = threads(batch * steps * tags * tags, _THREAD_MOVES, batch)
        room = library.foci_crf_scratch(batch, steps, tags, k, self.threads)
        self.scratch = chain.emissions.new_empty(room, dtype=torch.float64)

    def __call__(self, name: str, *arguments: Tensor | int | None) -> int | None:
        """Call ``foci_crf_name`` and return its result; tensors, also those it writes to, are contiguous."""
        function = getattr(self._library, f"foci_crf_{name}_{self._suffix}")
        answer: int | None = run(function, *self._parts, *self._sizes, *arguments, self.threads)
        return answer


def _room_to_keep(chain: Chain, keep: bool) -> tuple[Tensor, Tensor]:
    """Return empty tensors for the path that each row takes in the kernel and for what the backward pass needs."""
    batch, steps, num_tags = chain.emissions.shape
    width = (num_tags + _LANES - 1) // _LANES * _LANES
    kept = chain.emissions.new_empty((batch, steps if keep else 0, width), dtype=torch.float64)
    return chain.emissions.new_empty(batch, dtype=torch.uint8), kept


def _compiled_total(library: ctypes.CDLL, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    *parts, tags, keep = arguments
    chain = Chain(*parts)
    call, (totals, ways, kept) = _ChainCall(library, chain), _total_like(*arguments)
    tags = None if tags is None else tags.contiguous()
    if tags is not None and (tags.shape != chain.emissions.shape[:2] or tags.dtype != torch.int64):
        raise ShapeError(
            f"crf: tags has shape {tuple(tags.shape)} and {tags.dtype}, expected (batch, step), torch.int64."
        )
    if call("total", tags, call.scratch, totals, ways, kept if keep else None):
        raise crf_plain.unknown_tags(chain.emissions.shape[-1])
    return totals, ways, kept


def _compiled_gradients(
    library: ctypes.CDLL, chain: Chain, tags: Tensor | None, grad: Tensor, ways: Tensor, kept: Tensor
) -> tuple[Tensor, ...]:
    call = _ChainCall(library, chain)
    found = tuple(part.new_empty(part.shape) for part in chain[:4])
    tags = None if tags is None else tags.contiguous()
    call("gradients", tags, grad.contiguous(), ways.contiguous(), kept.contiguous(), call.scratch, *found)
    return found


def _compiled_marginals(library: ctypes.CDLL, *parts: Any) -> Tensor:
    chain = Chain(*parts)
    totals, ways, kept = _compiled_total(library, *chain, None, True)
    call, shares = _ChainCall(library, chain), chain.emissions.new_empty(chain.emissions.shape)
    call("gradients", None, torch.ones_like(totals), ways, kept, call.scratch, shares, None, None, None)
    return shares


def _compiled_best(library: ctypes.CDLL, *arguments: Any) -> tuple[Tensor, Tensor]:
    *parts, k = arguments
    call, (scores, tags) = _ChainCall(library, Chain(*parts), k), _best_like(*arguments)
    call("decode", k, call.scratch, scores, tags)
    return scores, tags


def _compiled_messages(library: ctypes.CDLL, chain: Chain, tags: SpanTags) -> SpanMessages:
    batch, steps, num_tags = chain.emissions.shape
    labels = len(tags.single)
    call = _ChainCall(library, chain)
    room = library.foci_crf_span_scratch(steps, num_tags, labels, call.threads)
    scratch, totals, messages = (
        torch.empty(shape, dtype=torch.float64, device="cpu")
        for shape in ((room,), (batch,), (4, batch, steps, labels))
    )
    numbers = torch.stack([tags.single, tags.first, tags.last, tags.continuing]).long()
    call("span_messages", labels, numbers, scratch, messages, totals)
    opened, alone, closed, closed_alone = messages
    return SpanMessages(opened, alone, closed, closed_alone, totals)


def _compiled_every(library: ctypes.CDLL, spans: SpanTerms, width: int) -> Tensor:
    batch, steps, labels = spans.messages.opened.shape
    count = threads(batch * steps * width * labels, _THREAD_MOVES, batch * steps)
    found = torch.empty((batch, steps, width, labels), dtype=torch.float64, device="cpu")
    scratch = found.new_empty(count * labels)
    messages = torch.stack(spans.messages[:4])
    parts = [messages, spans.inner, spans.last, spans.moves, spans.messages.log_partition, spans.exists]
    read = [part.contiguous() for part in parts]
    run(library.foci_crf_every_span, *read, batch, steps, labels, width, scratch, found, count)
    return found


def _self_check(library: ctypes.CDLL) -> bool:
    """Compare a chain with the plain recursions; 5 tags fill a vector and a rest."""
    scores = numbers_for((1, 3, 5), (5, 5), (5,), (5,))
    # By weights, then by scores.
    return _agrees(library, scores) and _agrees(library, [400 * part for part in scores])


def _agrees(library: ctypes.CDLL, scores: Sequence[Tensor]) -> bool:
    tags = torch.tensor([[4, 0, 2]], device="cpu")
    begin, inner = torch.tensor([1], device="cpu"), torch.tensor([2], device="cpu")
    of_spans = SpanTags(begin, begin, inner, inner, inner)  # a span is tag 1, then any number of 2; 2 continues it
    tolerances = {torch.float32: 1e-5, torch.float64: 1e-12}

    def compiled(parts: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[list[Tensor], Sequence[Tensor]]:
        chain = _chain(*parts)
        totals, *kept = _compiled_total(library, *chain, tags, True)
        return [totals], _compiled_gradients(library, chain, tags, grads[0], *kept)

    def others(parts: Sequence[Tensor]) -> list[Tensor]:
        """The kernel's results without gradients of its own."""
        chain = _chain(*parts)
        messages = _compiled_messages(library, chain, of_spans)
        spans = _compiled_every(library, crf_spans_plain.terms(chain, of_spans, messages), 3)
        return [_compiled_marginals(library, *chain), *_compiled_best(library, *chain, 2), spans.exp()]

    chain = _chain(*scores)
    best_tags, best_scores = crf_plain.best(chain, 2)
    messages = crf_spans_plain.messages(chain, of_spans)
    spans = crf_spans_plain.every_span(crf_spans_plain.terms(chain, of_spans, messages), 3)
    wanted = [crf_plain.marginals(chain), best_scores, best_tags, spans.exp()]
    return agrees(lambda *parts: crf_plain.total(_chain(*parts), tags), compiled, scores, tolerances) and all(
        are_near(others([part.to(dtype) for part in scores]), wanted, tolerance)
        for dtype, tolerance in tolerances.items()
    )


def _chain(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> Chain:
    return Chain(emissions, transitions, start, end, None)


_KERNEL = Kernel("crf", _FUNCTIONS, _self_check, (torch.float32, torch.float64))


# --- the operators, of which every list of arguments begins with a chain


def _plain_total(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    *parts, tags, keep = arguments
    ways, kept = _room_to_keep(Chain(*parts), keep)
    # The plain path keeps nothing.
    return crf_plain.total(Chain(*parts), tags), torch.zeros_like(ways), torch.zeros_like(kept)


def _total_like(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    *parts, _, keep = arguments
    return parts[0].new_empty(parts[0].shape[0]), *_room_to_keep(Chain(*parts), keep)


def _total_gradients(
    grads: Grads, arguments: Sequence[Any], kept: Sequence[Tensor], wanted: Sequence[bool]
) -> Grads | None:
    *parts, tags, _ = arguments
    library, (grad,) = _library(*parts), grads
    if library is None or grad is None:
        return None
    return _compiled_gradients(library, Chain(*parts), tags, grad, *kept)


def _plain_marginals(*parts: Any) -> Tensor:
    return crf_plain.marginals(Chain(*parts)).contiguous()


def _marginals_gradients(
    grads: Grads, arguments: Sequence[Any], kept: Sequence[Tensor], wanted: Sequence[bool]
) -> Grads | None:
    return _in_double(crf_plain.marginals, Chain(*arguments), grads)


def _plain_best(*arguments: Any) -> tuple[Tensor, Tensor]:
    *parts, k = arguments
    tags, scores = crf_plain.best(Chain(*parts), k)
    return scores.contiguous(), tags.contiguous()


def _best_like(*arguments: Any) -> tuple[Tensor, Tensor]:
    emissions, k = arguments[0], arguments[5]
    batch, steps, _ = emissions.shape
    return emissions.new_empty(batch, k), emissions.new_empty((batch, k, steps), dtype=torch.int64)


def _best_gradients(
    grads: Grads, arguments: Sequence[Any], kept: Sequence[Tensor], wanted: Sequence[bool]
) -> Grads | None:
    return _in_double(lambda chain: crf_plain.scores_of(chain, kept[0]), Chain(*arguments[:5]), grads)


def _in_double(compute: Callable[[Chain], Tensor], chain: Chain, grads: Grads) -> Grads | None:
    """Return the gradients of a plain recursion in float64, rounded at the end as the kernel's are; None off a CPU."""
    if not chain.emissions.is_cpu:
        return None
    found = plain_gradients(
        lambda e, t, s, d: compute(Chain(e, t, s, d, chain.mask)),
        [part.double() for part in chain[:4]],
        [None if grad is None else grad.double() for grad in grads],
    )
    return [one.to(chain.emissions.dtype) for one in found]


_ARGUMENTS = "Tensor emissions, Tensor transitions, Tensor start, Tensor end, Tensor? mask"
_TOTAL = Operator(
    "crf_total",
    f"{_ARGUMENTS}, Tensor? tags, bool keep",
    inputs=4,
    results=3,
    differentiable=1,
    kept=slice(1, 3),
    compute=compiled_or_plain(_library, _compiled_total, _plain_total),
    gradients=_total_gradients,
    plain=_plain_total,
    like=_total_like,
)
_MARGINALS = Operator(
    "crf_marginals",
    _ARGUMENTS,
    inputs=4,
    compute=compiled_or_plain(_library, _compiled_marginals, _plain_marginals),
    gradients=_marginals_gradients,
    plain=_plain_marginals,
    like=lambda emissions, *_: emissions.new_empty(emissions.shape),
)
_BEST = Operator(
    "crf_best",
    f"{_ARGUMENTS}, int k",
    inputs=4,
    results=2,
    differentiable=1,
    kept=slice(1, 2),
    compute=compiled_or_plain(_library, _compiled_best, _plain_best),
    gradients=_best_gradients,
    plain=_plain_best,
    like=_best_like,
)
