"""Calls of an attention as edits see them, and what the mechanisms of foci read with edited weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from foci.masks import masked_softmax
from foci.outputs import AttentionOutput
from foci.recording.changes import Attended
from foci.recording.edits import Edit
from foci.recording.written_out import Read
from foci.weights import Weights
from foci.weights.sources import Dense, DotSoftmax

_MASKING = -1e4
"""Biases from here on down are masks: many models have -10000, or the least number of a dtype, in the place of -inf."""


@dataclass(frozen=True)
class Reread:
    """How a call of a function of foci reads with its weights.

    Attributes:
        read: returns the output of weights.
        find_open: returns which positions may be read, of the rank of the weights; None for all.
        limited: makes the call with only these positions open. None where no mask does that: the others share.
        next_state: returns the next state from the weights ``(B, 1, S)`` of one query and its output; None where it
            does not depend on them.
        step: returns the arguments of the call for one query, from its number and the state; None where the queries
            do not depend on each other.
        kind: what its weights are.
        has_queries: whether they have an axis of queries.
    """

    read: Callable[[Tensor], Tensor]
    find_open: Callable[[], Tensor | None]
    limited: Callable[[Tensor], AttentionOutput] | None
    next_state: Callable[[Tensor, Tensor], Any] | None = None
    step: Callable[[int, Any], tuple[Any, ...]] | None = None
    kind: type[Attended] = Attended
    has_queries: bool = True


def attended_by(name: str, weights: Weights) -> Attended:
    """Return the call whose weights these are."""
    source = weights.source
    limit = None
    if isinstance(source, DotSoftmax):
        dots = source

        def limit(open: Tensor) -> Tensor:
            found = _open(weights)
            return replace(dots, mask=open if found is None else open & found, versions=None).rows(slice(None))

    return Attended(name, weights.shape, weights.device, weights.dense, lambda: _open(weights), limit)


def attended_in(name: str, read: Read) -> Attended:
    """Return the call of an attention that a model's own code writes out."""
    computed, scores, result = read.arranged(read.computed), read.softmax.scores, read.softmax.result
    limit = None
    if scores is None or result is None or result.shape != read.computed.shape:
        return Attended(name, computed.shape, computed.device, lambda: computed, lambda: computed != 0.0)
    arranged = read.arranged(scores.expand(result.shape)).to(result.dtype)

    def find_open() -> Tensor:
        return (read.arranged(result) != 0.0) | (arranged > _MASKING / 2)  # the latter if a small weight became 0

    if result is read.computed:

        def limit(open: Tensor) -> Tensor:
            return torch.where(open.all(dim=-1, keepdim=True), computed, masked_softmax(arranged, open & find_open()))

    return Attended(name, computed.shape, computed.device, lambda: computed, find_open, limit)


def changed(call: Attended, edits: Sequence[Edit]) -> bool:
    """Apply the edits to the call, and return whether anything has changed."""
    for edit in edits:
        edit.apply(call)
    return call.is_changed


def read_edited(
    name: str,
    edits: Sequence[Edit],
    function: Callable[..., AttentionOutput],
    how: Callable[..., Reread],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> AttentionOutput:
    """Return what a function of foci reads with the edited weights."""
    reading = how(*args, **kwargs)
    found = function(*args, **kwargs)
    length = found.weights.shape[-2]
    if reading.step is None or length < 2:
        return _read(name, edits, reading, found)
    steps: list[AttentionOutput] = []
    is_changed = False
    for row in range(length):
        given = reading.step(row, steps[-1].state if steps else None)
        plain = function(*given)
        steps.append(_read(name, edits, how(*given), plain, first=row, length=length))
        is_changed |= steps[-1] is not plain
    if not is_changed:
        return found
    outputs, weights = zip(*((step.output, step.weights.dense()) for step in steps))
    return AttentionOutput(torch.cat(outputs, dim=-2), Weights.from_tensor(torch.cat(weights, dim=-2)), steps[-1].state)


def _read(
    name: str, edits: Sequence[Edit], reading: Reread, found: AttentionOutput, first: int = 0, length: int = 0
) -> AttentionOutput:
    """Return what was found, or what the edited weights read."""

    def with_query(weights: Tensor) -> Tensor:
        return weights if reading.has_queries else weights.unsqueeze(-2)

    def without_query(weights: Tensor) -> Tensor:
        return weights if reading.has_queries else weights.squeeze(-2)

    def find_open() -> Tensor | None:
        mask = reading.find_open()
        return None if mask is None else with_query(mask)

    limit, limited = None, reading.limited
    if limited is not None:
        again = limited

        def limit(open: Tensor) -> Tensor:
            return with_query(again(without_query(open)).weights.dense())

    there = with_query(found.weights.dense())
    call = reading.kind(
        name, there.shape, there.device, lambda: there, find_open, limit, first, length, reading.has_queries
    )
    if not changed(call, edits):
        return found
    weights = without_query(call.weights)
    output = reading.read(weights if call.kept is None else weights * without_query(call.kept))
    state = found.state if reading.next_state is None else reading.next_state(weights, output)
    return AttentionOutput(output, replace(found.weights, source=Dense(weights)), state)


def _open(weights: Weights) -> Tensor | None:
    """Return which positions may be read; None for all."""
    source = weights.source
    if not isinstance(source, DotSoftmax):
        return weights.dense() != 0.0
    _, mask = source.scores(slice(None))
    if source.bias is None:
        return mask
    near = source.bias > _MASKING
    return near if mask is None else mask & near
