"""Slots of a memory over steps, each attention and head a panel."""

from __future__ import annotations

import numpy as np

from foci.errors import ConfigError
from foci.viz.figure import canvas
from foci.viz.figure.heatmap import Labels, draw
from foci.viz.selection import Selection
from foci.viz.trace import Trace


def fits(selection: Selection) -> bool:
    """What is read are slots."""
    return selection.source.kind == "slots"


def figure(trace: Trace, style: canvas.FigureStyle) -> canvas.Figure:
    """Slots from top to bottom, steps from left to right."""
    tapes = trace.attentions_to("slots")
    if not tapes:
        raise ConfigError("plot: view 'memory' needs an attention whose source are slots.")
    one = tapes[0]
    if len({(tape.source, tape.target) for tape in tapes}) > 1:
        raise ConfigError("plot: view 'memory' needs attentions of one memory over the same steps.")
    panels = [tape.kind + (f", head {head}" if tape.heads > 1 else "") for tape in tapes for head in range(tape.heads)]
    stack = np.stack([style.scaled(tape.dense(head)).T for tape in tapes for head in range(tape.heads)])
    # No slot is ever out of reach: a share of exactly 0 is a tiny one that was rounded, and is not drawn as masked.
    stack = np.maximum(stack, np.finfo(stack.dtype).tiny)
    steps, slots = trace.axes[one.target], trace.axes[one.source]
    labels = Labels.from_axes(slots, steps, style.title("weight").replace("row", "step"), panels=panels)
    return draw(stack, labels, style, right_to_left=steps.right_to_left)
