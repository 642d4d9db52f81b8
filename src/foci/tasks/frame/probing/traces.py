"""Inputs of a run as what can be probed: the attentions of a prediction's trace, and what people marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foci.errors import ConfigError
from foci.probing.modules import read_by_path
from foci.probing.subject import Attended, Place, Source, Subject, overlapping
from foci.recording import record
from foci.viz.trace import Trace

RATIONALES = "rationales"
"""The field of what people marked as the reason: ``[begin, end]`` of characters, in a text or by the name of a text."""


def subject_of_trace(
    model: nn.Module,
    inputs: Sequence[Any],
    places: Mapping[str, Place],
    trace: Trace,
    probabilities: Callable[[Any], Tensor],
    given: Mapping[str, Any],
) -> Subject:
    """Return an input of a run as what can be probed: its attentions are those of its trace.

    Args:
        model: of the run.
        inputs: the arguments of the model.
        places: of the axes of the trace whose tokens can be erased, which of the inputs has their ids.
        trace: of the prediction.
        probabilities: of the answers, from what the model returns.
        given: the input, with what people marked.
    """
    sources = {
        key: Source(place, trace.axes[key].labels, gold=_marked(given, key, trace.axes[key].labels))
        for key, place in places.items()
        if key in trace.axes
    }
    bare = Subject(model, dict(enumerate(inputs)), sources, {}, probabilities, title=trace.text)
    with torch.no_grad(), record(model, detach=True) as tape:
        bare.answer()
    by_path = read_by_path(tape)
    attentions = {}
    for name, attention in trace.attentions.items():
        if attention.source in sources and not attention.derived:
            weights = np.stack([attention.dense(head) for head in range(attention.heads)]).astype(np.float64)
            same = [path for path in by_path if _equal(by_path[path], weights)]
            by_path = {path: one for path, one in by_path.items() if path not in same[:1]}
            attentions[name] = Attended(attention.source, weights.mean(axis=1), tuple(same[:1]))
    unknown = [name for name, one in attentions.items() if not one.paths]
    if len(unknown) == 1:  # made of all that is left, as the weights of a document's words are of those of its levels
        attentions[unknown[0]] = attentions[unknown[0]]._replace(paths=tuple(by_path))
    return replace(bare, attentions=attentions)


def _equal(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    return first.shape == second.shape and np.allclose(first, second, atol=1e-4)


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
    if not all(isinstance(one, Sequence) and len(one) == 2 for one in spans):
        raise ConfigError(f"probe: rationales are {spans!r}, expected [[begin, end], …] in characters.")
    return overlapping(_places(text, tokens), spans)


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
