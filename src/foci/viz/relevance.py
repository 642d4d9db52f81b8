"""Relevance in traces: further maps of each attention, beside its weights, that say more of what mattered.

    rollout        the attention of all layers so far; from the weights alone
    gradient       attention × gradient of one layer, the mean over heads
    chefer         R − I of all layers so far, by Chefer's rules for one or two streams
    norms          ‖Σ_h a f_h(x)‖, the lengths of the vectors that are added up
    value_zeroing  how far a layer's output turns when the value of a position is zero

All but the rollout are computed where the model runs (`Trace.from_tape`), and are kept in `TracedAttention.extras`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from foci.errors import ConfigError, unknown_name
from foci.metrics.attention import rollout
from foci.metrics.relevance import Streams, chefer, gradient_map, norms
from foci.recording import Recording
from foci.viz.given_weights import entry
from foci.viz.trace import TopWeights, Trace, TracedAttention
from foci.weights import Weights

Map = NDArray[np.float32]

_RECORD = "Record with foci.record(model, gradients=True), call backward on a score, and make the trace after that"
NEEDS = {
    "rollout": "It needs all weights of all layers of a stack of self-attention.",
    "gradient": f"{_RECORD}.",
    "chefer": f"{_RECORD}; every attention must have a gradient, and who reads and what is read may be two texts at "
    "most: a document's words, its sentences and its class are three. Take gradient there.",
    "norms": "Record with foci.record(model, values=True); Recording.projected says of which attention the values "
    "cannot be known, and why.",
    "value_zeroing": "Compute it with foci.metrics.relevance.value_zeroing, which runs the model again, and add it by "
    "foci.viz.relevance.with_maps.",
}
"""The relevances, and what each of them needs."""
SCORED = ("gradient", "chefer")
"""Relevances that explain a score."""
COMPUTED = (*SCORED, "norms", "value_zeroing")
"""Relevances that are computed with the model; the others are of a trace."""
_ROUNDING = 1e-6
"""A row with a smaller share of the largest one than this has no relevance."""


def with_relevance(trace: Trace, tape: Recording, row: int = 0, paths: Mapping[str, str] | None = None) -> Trace:
    """Return the trace with the maps "gradient", "chefer" and "norms" of which the tape has what they need.

    Attentions of a tape with values whose norms cannot be known are named in the metadata.

    Args:
        trace: made of the tape.
        tape: recorded with ``gradients=True``, `backward` called on a score since; or with ``values=True``.
        row: the entry of the batch that the trace is of.
        paths: of each attention its key on the tape, where it is called differently.
    """
    gradients, lengths, unknown = {}, {}, []
    for name, attention in trace.attentions.items():
        path = name if paths is None else paths[name]
        if path not in tape or (paths is None and len(tape.calls(path)) > 1):  # its calls are rows
            continue
        weights, gradient = tape[path], tape.gradient(path)
        if gradient is not None:
            product = _of_row(trace, attention, weights.dense().detach() * gradient, row)
            gradients[name] = _kept(attention, gradient_map(product, torch.ones_like(product)))
        if tape.keeps_values and len(weights.shape) in (3, 4):
            found = _norms(tape, path)
            if found is None:
                unknown.append(name)
            else:
                lengths[name] = _kept(attention, found[row])
    through = _chefer(trace, gradients) if len(gradients) == len(trace.attentions) else {}
    for method, maps in (("gradient", gradients), ("chefer", through), ("norms", lengths)):
        trace = with_maps(trace, method, maps)
    return replace(trace, metadata={**trace.metadata, "without norms": ", ".join(unknown)}) if unknown else trace


def with_maps(trace: Trace, method: str, maps: Mapping[str, Map | torch.Tensor]) -> Trace:
    """Return the trace with a further map ``(L, S)`` of each attention that is named; of tensors the labeled part."""
    attentions = dict(trace.attentions)
    for name, one in maps.items():
        attention = trace.attention(name)
        kept = _kept(attention, one) if isinstance(one, torch.Tensor) else one
        attentions[name] = replace(attention, extras={**attention.extras, method: kept})
    return replace(trace, attentions=attentions) if maps else trace


def maps_of(trace: Trace, method: str) -> dict[str, Map]:
    """Return the maps of one relevance by attention; those that have none are left out."""
    if method not in NEEDS:
        raise unknown_name("relevance", method, NEEDS)
    kept = {name: one.extras[method] for name, one in trace.attentions.items() if method in one.extras}
    return {**rollouts(trace), **kept} if method == "rollout" else kept


def relevance(trace: Trace, method: str) -> Trace:
    """Return a trace with relevance where the weights were, each row scaled so that it adds up to 1.

    Attentions without it are left out; if there is none, that is an error. Rows without any relevance stay 0: what they
    read did not matter for the score.
    """
    maps = maps_of(trace, method)
    if not maps:
        raise ConfigError(f"Trace.relevance: there is no {method} in this trace. {NEEDS[method]}")
    attentions = {
        name: TracedAttention(name, one.source, one.target, _shares(maps[name])[None])
        for name, one in trace.attentions.items()
        if name in maps
    }
    metadata: dict[str, str | float] = {"relevance": method}
    if len(attentions) < len(trace.attentions):
        metadata["attentions with relevance"] = f"{len(attentions)} of {len(trace.attentions)}"
    return replace(trace, attentions=attentions, metadata={**trace.metadata, **metadata})


def rollouts(trace: Trace) -> dict[str, Map]:
    """Return the rollout ``(L, L)`` after each layer of self-attention, by the layer's name.

    A stack of layers is known by its names: ``encoder.0.self``, ``encoder.1.self``, …, without a gap. Stacks
    of one layer are left out, and so are those of which the trace did not keep all weights or all heads.

    Example:
        >>> weights = [[[[0.0, 1.0], [0.0, 1.0]]], [[[1.0, 0.0], [1.0, 0.0]]]]
        >>> rollouts(Trace.from_arrays(weights, ["a", "b"]))["attention.1"].tolist()
        [[0.5, 0.5], [0.25, 0.75]]
    """
    stacks: dict[tuple[str, str], list[TracedAttention]] = {}
    for attention in trace.attentions.values():
        if attention.layer is None or attention.source != attention.target:
            continue
        stacks.setdefault((attention.stack, attention.source), []).append(attention)
    found = {}
    for layers in stacks.values():
        layers.sort(key=lambda attention: attention.layer or 0)
        complete = [layer.layer for layer in layers] == list(range(len(layers))) and len(layers) > 1
        if not complete or any(isinstance(layer.weights, TopWeights) or layer.selected is not None for layer in layers):
            continue
        for layer, reached in zip(layers, rollout(np.stack([layer.dense() for layer in layers]))):
            found[layer.name] = reached.astype(np.float32)
    return found


def _chefer(trace: Trace, gradients: Mapping[str, Map]) -> dict[str, Map]:
    """Return R − I by attention, in the order of the trace; nothing for more than two streams."""
    streams = [_streams(one) for one in trace.attentions.values()]
    if len({stream for pair in streams for stream in pair}) > 2:
        return {}
    through = chefer([torch.from_numpy(gradients[name]) for name in trace.attentions], streams)
    return {
        name: (one - torch.eye(len(one)) if reader == read else one).clamp_min(0.0).numpy()
        for name, one, (reader, read) in zip(trace.attentions, through, streams)
    }


def _streams(attention: TracedAttention) -> Streams:
    """Return who reads what. A decoder's self-attention reads its own input, whose labels are a token behind."""
    if attention.kind == "self" and attention.shape[1] == attention.shape[2]:
        return attention.target, attention.target
    return attention.target, attention.source


def _norms(tape: Recording, path: str) -> torch.Tensor | None:
    weights = tape[path].dense().detach()
    try:
        return norms(weights.unsqueeze(1) if weights.dim() == 3 else weights, tape.projected(path))
    except ConfigError:  # it is not known of this one
        return None


def _of_row(trace: Trace, attention: TracedAttention, batch: torch.Tensor, row: int) -> torch.Tensor:
    """Return an entry of a batch of maps ``(H, L, S)``, also of a mechanism without heads."""
    one = entry(attention.name, Weights.from_tensor(batch), row, trace.axes).dense()[0]
    return one.reshape((1,) * (3 - one.dim()) + one.shape)


def _kept(attention: TracedAttention, one: torch.Tensor) -> Map:
    _, rows, columns = attention.shape
    return np.ascontiguousarray(one[:rows, :columns].float().cpu().numpy())


def _shares(one: Map) -> Map:
    total = one.sum(axis=-1, keepdims=True)
    some = total > _ROUNDING * max(float(total.max(initial=0.0)), 1e-30)
    shares: Map = np.divide(one, total, out=np.zeros_like(one), where=some)
    return shares
