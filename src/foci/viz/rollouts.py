"""Attention rollout of the layers of a trace: how much of each input reaches each position after each layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foci.metrics.attention import rollout
from foci.viz.trace import TopWeights, Trace, TracedAttention


def rollouts(trace: Trace) -> dict[str, NDArray[np.float32]]:
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
