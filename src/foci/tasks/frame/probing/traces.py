"""Inputs of a run with their traces: as what can be probed, with what people marked, and with relevance."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foci.errors import ConfigError
from foci.metrics.relevance import gradient_map, value_zeroing
from foci.probing.erasers import Cells, Place
from foci.probing.modules import read_by_path
from foci.probing.subject import Attended, Source, Subject
from foci.recording import Recording, record
from foci.tasks.frame.probing.marked import marked_tokens, refuse_idle_marks
from foci.viz.relevance import SCORED, with_maps, with_relevance
from foci.viz.trace import Trace, TracedAttention

FREQUENT = 1000
"""How many words, the most frequent ones, have a share in the mean vector that erased words get."""
_EQUAL = 1e-4
"""Weights that differ by less are those of one attention."""


class TracedPass(NamedTuple):
    """One input of a run as its model reads it.

    Attributes:
        inputs: the arguments of the model; of an answer that was searched, with the answer.
        sources: what of them can be erased, by the axis of the trace, or by a name of their own in ``reads``.
        trace: of the prediction.
        probabilities: returns those of the answers, from what the model returns.
        forward: is called with the arguments instead of the model, whose parts it calls.
        groups: of an axis whose positions are erased several at a time, the number of the part of each.
        reads: the source of an attention, where it is not called as its axis is.
        apart: attentions whose rows are maps of their own, such as those of hops, and are probed one by one.
        answer: the axis of the trace that has the tokens of the answer, if it has several.
        first: the row of that axis with which the answer begins; those before it are not of the answer.
        notes: what is not measured, and why.
    """

    inputs: Sequence[Any]
    sources: Mapping[str, Source]
    trace: Trace
    probabilities: Callable[[Any], Tensor]
    forward: Callable[..., Any] | None = None
    groups: Mapping[str, NDArray[np.int64]] = {}
    reads: Mapping[str, str] = {}
    apart: frozenset[str] = frozenset()
    answer: str = ""
    first: int = 0
    notes: tuple[str, ...] = ()


class _Map(NamedTuple):
    """Weights of a trace ``(H, L, S)``, and the axis that they read."""

    axis: str
    weights: NDArray[np.float64]
    attention: str


def text_sources(trace: Trace, places: Mapping[str, Place]) -> dict[str, Source]:
    """Return the texts whose tokens are erased where the model embeds them.

    Args:
        trace: has an axis for each of them.
        places: which argument of the model has the ids of each.
    """
    return {key: Source(place, trace.axes[key].labels) for key, place in places.items() if key in trace.axes}


def vector_source(place: Place, tokens: Sequence[str], vectors: Tensor, neutral: Tensor) -> Source:
    """Return words that a model takes as vectors, where what it knows of a word is more than an embedding.

    Args:
        place: which argument has the vectors.
        tokens: the words.
        vectors: ``(1, S, D)``.
        neutral: the vectors of all words, or of the `FREQUENT` ones, ``(1, V, D)``, whose mean takes the place of an
            erased one.
    """
    owner = torch.arange(vectors.shape[1], device=vectors.device).reshape(1, -1, 1)
    return Source(place, tuple(tokens), eraser=Cells(owner, neutral.detach().mean(dim=1, keepdim=True)))


def subject_of_trace(model: nn.Module, one: TracedPass, given: Mapping[str, Any]) -> Subject:
    """Return an input of a run as what can be probed: its attentions are those of its trace.

    Args:
        model: of the run.
        one: the input as the model reads it.
        given: the input, with what people marked.
    """
    refuse_idle_marks(given, one.sources)
    sources = {
        key: source._replace(gold=marked_tokens(given, key, source.tokens)) if source.unit == "words" else source
        for key, source in one.sources.items()
    }
    title, inputs = one.trace.text, dict[Place, Any](enumerate(one.inputs))
    bare = Subject(model, inputs, sources, {}, one.probabilities, one.forward, title, one.notes)
    with torch.no_grad(), record(model, detach=True) as tape:
        bare.answer()
    maps = _maps(one)
    found, others = _paths_of(maps, tape)
    paths: dict[str, tuple[str, ...]] = {name: (path,) for name, path in found.items()}
    derived = {name for name, one_map in maps.items() if one.trace.attentions[one_map.attention].derived}
    unknown = [name for name in maps if name not in paths and name not in derived]
    if len(unknown) == 1:  # made of all that is left, as the weights of a document's words are of those of its levels
        paths[unknown[0]] = others
    attentions = {}
    for name, read in maps.items():
        key = one.reads.get(read.attention, read.axis)
        if key in sources and name not in derived:
            weights = _grouped(read.weights[:, one.first :].mean(axis=1), one.groups.get(read.axis))
            attentions[name] = Attended(key, weights, paths.get(name, ()))
    left = [name for name in maps if name not in {*attentions, *derived}]
    notes = [f"not probed, since what they read is nothing that can be erased: {', '.join(left)}"] if left else []
    return replace(bare, attentions=attentions, notes=(*one.notes, *notes))


def subjects_of_tokens(subject: Subject, one: TracedPass) -> Iterator[Subject]:
    """Yield a subject for each token of an answer, with what that token read.

    What people marked is the reason of the whole answer, so it is left out.
    """
    trace = one.trace
    with torch.no_grad():
        answer = subject.answer()
    maps = {name: read for name, read in _maps(one).items() if trace.attentions[read.attention].target == one.answer}
    read = {name: maps[name] for name in subject.attentions if name in maps}
    if answer.dim() == 2 or not read:
        raise ConfigError(
            "probe: each_token is about what each token of an answer read, but here the answer is one label, or its "
            "tokens read nothing that can be erased. Leave it out."
        )
    sources = {key: source._replace(gold=None) for key, source in subject.sources.items() if not source.probabilities}
    for number in range(answer.shape[1]):
        attentions = {
            name: subject.attentions[name]._replace(
                weights=_grouped(each.weights[:, one.first + number], one.groups.get(each.axis))
            )
            for name, each in read.items()
        }
        yield replace(
            subject, sources=sources, attentions=attentions, probabilities=_of_token(subject.probabilities, number)
        )


def _of_token(probabilities: Callable[[Any], Tensor], number: int) -> Callable[[Any], Tensor]:
    return lambda output: probabilities(output)[:, number]


def _maps(one: TracedPass) -> dict[str, _Map]:
    """Return the weights of each attention by its name; of those whose rows stand apart, of each row by its label."""
    found: dict[str, _Map] = {}
    for name, attention in one.trace.attentions.items():
        weights = _heads(attention)
        if name in one.apart:
            labels = one.trace.axes[attention.target].labels
            found |= {label: _Map(attention.source, weights[:, [row]], name) for row, label in enumerate(labels)}
        else:
            found[name] = _Map(attention.source, weights, name)
    return found


def _grouped(weights: NDArray[np.float64], groups: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """Return the weights ``(H, S)`` of groups of positions."""
    if groups is None:
        return weights
    return np.stack([weights[:, groups == number].sum(axis=1) for number in range(int(groups.max()) + 1)], axis=1)


def explained_trace(model: nn.Module, one: TracedPass, method: str) -> Trace:
    """Return the trace with a relevance of its attentions that is computed with the model: one of `COMPUTED`.

    What is explained is the log-probability of the answer.

    Raises:
        ConfigError: none of its attentions has it.
    """
    scored, forward = method in SCORED, one.forward or model
    answers = [one.probabilities, *(own.probabilities for own in one.sources.values() if own.probabilities is not None)]
    with torch.set_grad_enabled(scored), record(model, gradients=scored, values=method == "norms") as tape:
        output = forward(*one.inputs)
        if scored:
            best = [answer(output).max(dim=-1).values.clamp_min(1e-30).log().sum() for answer in answers]
            score = torch.stack(best).sum()
            score.backward()
    model.zero_grad(set_to_none=True)
    maps = _maps(one)
    found, _ = _paths_of(maps, tape)
    paths = {name: path for name, path in found.items() if len(tape.calls(path)) == 1 and name in one.trace.attentions}
    if method == "value_zeroing":
        modules = {name: path for name, path in paths.items() if ":" not in path}  # others are parts of a mechanism
        with torch.no_grad():
            turned = value_zeroing(model, lambda: forward(*one.inputs), list(modules.values()))
        trace = with_maps(one.trace, method, {name: turned[path][0] for name, path in modules.items()})
        return _with_any(trace, method)
    known = replace(one.trace, attentions={name: one.trace.attentions[name] for name in paths})
    mapped = with_relevance(known, tape, 0, paths)
    about: dict[str, str | float] = {}
    if scored:
        about = {"explained": "log-probability of the answer", "score": float(score.detach())}
    trace = replace(
        one.trace,
        attentions={**one.trace.attentions, **mapped.attentions},
        metadata={**one.trace.metadata, **mapped.metadata, **about},
    )
    if method == "gradient":
        trace = with_maps(trace, method, _gradients_by_row(maps, found, tape, {*mapped.attentions}))
    return _with_any(trace, method)


_WITHOUT = {
    "gradient": "The answer does not hang on their weights, or no module is known to compute them.",
    "chefer": "It needs the gradients of all attentions, each of a single call of a module. Take gradient.",
    "norms": "The values that they read cannot be known. Take gradient.",
    "value_zeroing": "It needs layers that a single call of a module computes. Take gradient.",
}
"""Why the attentions of a run can be without a relevance."""


def _with_any(trace: Trace, method: str) -> Trace:
    """Return the trace; raise if none of its attentions has the relevance."""
    if any(method in attention.extras for attention in trace.attentions.values()):
        return trace
    names = ", ".join(trace.attentions)
    raise ConfigError(f"relevance: {method} is not known of any attention of this input ({names}). {_WITHOUT[method]}")


def _gradients_by_row(
    maps: Mapping[str, _Map], found: Mapping[str, str], tape: Recording, done: Collection[str]
) -> dict[str, Tensor]:
    """Return attention × gradient ``(L, S)`` of attentions whose rows are calls, or modules, of their own.

    A call that no gradient reaches has rows of 0, if one reaches others: the answer does not hang on it.
    """
    rows: dict[str, list[Tensor]] = {}
    reached: dict[str, bool] = {}
    for name, (_, weights, attention) in maps.items():
        path = found.get(name)
        calls = range(0 if path is None or attention in done else len(tape.calls(path)))
        reached.setdefault(attention, True)
        reached[attention] &= any(tape.gradient(str(path), call) is not None for call in calls)
        heads, _, size = weights.shape
        for call in calls:
            gradient, read = tape.gradient(str(path), call), tape[str(path), call].dense().detach()
            product = (torch.zeros_like(read) if gradient is None else read * gradient)[0].reshape(heads, -1, size)
            rows.setdefault(attention, []).append(gradient_map(product, torch.ones_like(product)))
    return {name: torch.cat(parts) for name, parts in rows.items() if reached[name]}


def _paths_of(maps: Mapping[str, _Map], tape: Recording) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the module that computes each attention, the one with the same weights, and the modules that are left."""
    by_path = read_by_path(tape)
    found = {}
    for name, (_, weights, _) in maps.items():
        alike = {path: one for path, one in by_path.items() if one.shape == weights.shape}
        apart = {path: float(np.abs(one - weights).max()) for path, one in alike.items()}
        nearest = min(apart, key=apart.__getitem__, default="")
        if apart.get(nearest, 1.0) < _EQUAL:
            found[name] = nearest
            del by_path[nearest]
    return found, tuple(by_path)


def _heads(attention: TracedAttention) -> NDArray[np.float64]:
    return np.stack([attention.dense(head) for head in range(attention.heads)]).astype(np.float64)
