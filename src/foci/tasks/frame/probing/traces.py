"""Inputs of a run with their traces: as what can be probed, with what people marked, and with relevance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foci.errors import ConfigError
from foci.metrics.relevance import value_zeroing
from foci.probing.modules import read_by_path
from foci.probing.subject import Attended, Place, Source, Subject, overlapping
from foci.recording import Recording, record
from foci.viz.relevance import SCORED, with_maps, with_relevance
from foci.viz.trace import Trace, TracedAttention

RATIONALES = "rationales"
"""The field of what people marked as the reason: ``[begin, end]`` of characters, in a text or by the name of a text."""


_EQUAL = 1e-4
"""Weights that differ by less are those of one attention."""


class TracedPass(NamedTuple):
    """One input of a run as its model reads it.

    Attributes:
        inputs: the arguments of the model; of an answer that was searched, with the answer.
        places: of the axes of the trace whose tokens can be erased, which of the inputs has their ids.
        trace: of the prediction.
        probabilities: returns those of the answers, from what the model returns.
    """

    inputs: Sequence[Any]
    places: Mapping[str, Place]
    trace: Trace
    probabilities: Callable[[Any], Tensor]


def subject_of_trace(model: nn.Module, one: TracedPass, given: Mapping[str, Any]) -> Subject:
    """Return an input of a run as what can be probed: its attentions are those of its trace.

    Args:
        model: of the run.
        one: the input as the model reads it.
        given: the input, with what people marked.
    """
    axes = one.trace.axes
    sources = {
        key: Source(place, axes[key].labels, gold=_marked(given, key, axes[key].labels))
        for key, place in one.places.items()
        if key in axes
    }
    bare = Subject(model, dict(enumerate(one.inputs)), sources, {}, one.probabilities, title=one.trace.text)
    with torch.no_grad(), record(model, detach=True) as tape:
        bare.answer()
    found, others = _paths_of(one.trace, tape)
    paths: dict[str, tuple[str, ...]] = {name: (path,) for name, path in found.items()}
    unknown = [name for name, attention in one.trace.attentions.items() if name not in paths and not attention.derived]
    if len(unknown) == 1:  # made of all that is left, as the weights of a document's words are of those of its levels
        paths[unknown[0]] = others
    attentions = {
        name: Attended(attention.source, _heads(attention).mean(axis=1), paths.get(name, ()))
        for name, attention in one.trace.attentions.items()
        if attention.source in sources and not attention.derived
    }
    return replace(bare, attentions=attentions)


def explained_trace(model: nn.Module, one: TracedPass, method: str) -> Trace:
    """Return the trace with a relevance of each attention that is computed with the model: one of `COMPUTED`.

    What is explained is the log-probability of the answer.
    """
    scored = method in SCORED
    with torch.set_grad_enabled(scored), record(model, gradients=scored, values=method == "norms") as tape:
        answer = one.probabilities(model(*one.inputs))
        if scored:
            score = answer.max(dim=-1).values.clamp_min(1e-30).log().sum()
            score.backward()
    model.zero_grad(set_to_none=True)
    found, _ = _paths_of(one.trace, tape)
    paths = {name: path for name, path in found.items() if len(tape.calls(path)) == 1}
    known = replace(one.trace, attentions={name: one.trace.attentions[name] for name in paths})
    if method == "value_zeroing":
        with torch.no_grad():
            turned = value_zeroing(model, lambda: model(*one.inputs), list(paths.values()))
        return with_maps(one.trace, method, {name: turned[path][0] for name, path in paths.items()})
    mapped = with_relevance(known, tape, 0, paths)
    about: dict[str, str | float] = {}
    if scored:
        about = {"explained": "log-probability of the answer", "score": float(score.detach())}
    return replace(
        one.trace,
        attentions={**one.trace.attentions, **mapped.attentions},
        metadata={**one.trace.metadata, **mapped.metadata, **about},
    )


def _paths_of(trace: Trace, tape: Recording) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the module that computes each attention, the one with the same weights, and the modules that are left."""
    by_path = read_by_path(tape)
    found = {}
    for name, attention in trace.attentions.items():
        weights = _heads(attention)
        alike = {path: one for path, one in by_path.items() if one.shape == weights.shape}
        apart = {path: float(np.abs(one - weights).max()) for path, one in alike.items()}
        nearest = min(apart, key=apart.__getitem__, default="")
        if apart.get(nearest, 1.0) < _EQUAL:
            found[name] = nearest
            del by_path[nearest]
    return found, tuple(by_path)


def _heads(attention: TracedAttention) -> NDArray[np.float64]:
    return np.stack([attention.dense(head) for head in range(attention.heads)]).astype(np.float64)


def _marked(given: Mapping[str, Any], key: str, tokens: Sequence[str]) -> frozenset[int] | None:
    """Return which tokens of a text people marked, None if nobody did."""
    spans = given.get(RATIONALES)
    if isinstance(spans, Mapping):
        spans = spans.get(key)
    if spans is None:
        return None
    text = next((given[name] for name in (key, "text") if isinstance(given.get(name), str)), None)
    if text is None:
        raise ConfigError(f"probe: rationales of {key!r} are given, but there is no such text.")
    return overlapping(_places(text, tokens), spans, len(text))


def _places(text: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Return where each token begins and ends in its text; one that is not found is empty."""
    places, cursor = [], 0
    lowered = text.casefold() if len(text.casefold()) == len(text) else text
    for token in tokens:
        found = text.find(token, cursor)
        begin = found if found >= 0 else lowered.find(token.casefold(), cursor)
        if begin < 0:
            places.append((cursor, cursor))
        else:
            places.append((begin, begin + len(token)))
            cursor = begin + len(token)
    return places
