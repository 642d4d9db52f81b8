"""All heads of all layers as small maps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foci.errors import ConfigError
from foci.viz.figure import canvas
from foci.viz.figure.heatmap import Labels, draw
from foci.viz.selection import Selection
from foci.viz.trace import Trace, TracedAttention


def fits(selection: Selection) -> bool:
    """It is drawn on request only."""
    return False


def figure(trace: Trace, style: canvas.FigureStyle, name: str | None = None) -> canvas.Figure:
    """A row of panels for each layer, a column for each head."""
    one = trace.attention(name) if name is not None else _first_of_several(trace)
    same = [
        attention
        for attention in trace.attentions.values()
        if (attention.kind, attention.source, attention.target) == (one.kind, one.source, one.target)
    ]
    layers = sorted(same, key=lambda attention: -1 if attention.layer is None else attention.layer)
    if len({attention.heads for attention in layers}) > 1:
        raise ConfigError(f"plot: the layers of {one.kind!r} differ in their number of heads; draw one with 'heatmap'.")
    stack = np.stack([attention.dense(head) for attention in layers for head in range(attention.heads)])
    rows, columns = trace.axes[one.target], trace.axes[one.source]
    panels = [f"head {head}" for head in range(one.heads)]
    several = len(layers) > 1
    labels = Labels.from_axes(
        rows,
        columns,
        style.title(trace.measure),
        panels=panels + [""] * (len(stack) - len(panels)),
        lines=[one.name if one.layer is None else f"layer {one.layer}" for one in layers] if several else None,
        hatched=canvas.meaning_of_zero(layers),
        all_or_none=True,
    )
    if several:
        labels = replace(labels, row_axis="", column_axis="")
    return draw(
        style.scaled(stack),
        labels,
        style,
        across=one.heads if several else None,
        right_to_left=columns.right_to_left,
    )


def _first_of_several(trace: Trace) -> TracedAttention:
    """An attention between two sides, or else the first."""
    across = [attention for attention in trace.attentions.values() if attention.source != attention.target]
    crossing = [one for one in across if (one.target, one.source) == ("target", "source") and not one.derived]
    several = crossing or across or list(trace.attentions.values())
    if not several:
        raise ConfigError("plot: the trace has no attention.")
    return several[0]
