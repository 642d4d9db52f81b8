"""Weights of channels as bars, a panel for each attention to channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foci.errors import ConfigError
from foci.viz import canvas
from foci.viz.colors import STOPS
from foci.viz.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HIGH = 1.1
"""Height of a panel in inches."""
_COLOR = STOPS[5]


def bars(trace: Trace, formatter: canvas.TextFormatter, style: canvas.FigureStyle, name: str | None = None) -> Figure:
    """Weights of channels as they were applied, where the trace has them, else as shares; a line marks their mean."""
    from foci.viz.figures import NotebookFigure

    chosen = [trace.attention(name)] if name is not None else list(trace.attentions.values())
    chosen = [attention for attention in chosen if trace.axes[attention.source].kind == "channels"]
    if not chosen:
        raise ConfigError("plot: view 'bars' needs an attention to channels, such as that of squeeze_excitation.")
    rows = [
        (attention, row, np.asarray(attention.extras.get("weight", attention.dense())[row]))
        for attention in chosen
        for row in range(attention.shape[1])
    ]
    figure = NotebookFigure(figsize=(style.width or 7.0, _HIGH * len(rows) + 0.5), layout="constrained")
    panels = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    for axes, (attention, row, weights) in zip(panels, rows):
        axes.bar(np.arange(len(weights)), weights, width=0.8, color=_COLOR)
        axes.axhline(float(weights.mean()), color="#808080", linewidth=0.6, linestyle="--")
        axes.set_xlim(-0.6, len(weights) - 0.4)
        axes.set_ylim(0, max(float(weights.max()) * 1.08, 1e-6))
        axes.spines[["top", "right"]].set_visible(False)
        target = trace.axes[attention.target]
        about = f", {formatter.label(target.labels[row])}" if len(target) > 1 else ""
        axes.set_title(f"{formatter(trace.axes[attention.source].title)}{about}", fontsize=style.size, loc="left")
    panels[-1].set_xlabel("channel")
    figure.supylabel("weight" if any("weight" in attention.extras for attention in chosen) else "share of the weights")
    return figure
