"""Weights of channels as bars, a panel for each attention to channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foci.errors import ConfigError
from foci.viz.colors import STOPS
from foci.viz.figure import canvas
from foci.viz.labels import width
from foci.viz.screen import PLAIN, Screen
from foci.viz.selection import Selection
from foci.viz.terminal.sheet import row_labels, with_notes
from foci.viz.trace import Trace

_HIGH = 1.1
"""Height of a panel in inches."""
_COLOR = STOPS[5]
_BARS, _DIGITS = "▁▂▃▄▅▆▇█", "0123456789"


def fits(selection: Selection) -> bool:
    """What is weighted are channels."""
    return selection.source.kind == "channels"


def figure(trace: Trace, style: canvas.FigureStyle, name: str | None = None) -> canvas.Figure:
    """Weights of channels as they were applied, where the trace has them, else as shares; a line marks their mean."""
    chosen = trace.attentions_to("channels", name)
    if not chosen:
        raise ConfigError("plot: view 'bars' needs an attention to channels, such as that of squeeze_excitation.")
    rows = [
        (attention, row, np.asarray(attention.extras.get("weight", attention.dense())[row]))
        for attention in chosen
        for row in range(attention.shape[1])
    ]
    drawn = canvas.new_figure(style.width or 7.0, _HIGH * len(rows) + 0.5, "constrained")
    panels = drawn.subplots(len(rows), 1, squeeze=False)[:, 0]
    for axes, (attention, row, weights) in zip(panels, rows):
        axes.bar(np.arange(len(weights)), weights, width=0.8, color=_COLOR)
        axes.axhline(float(weights.mean()), color="#808080", linewidth=0.6, linestyle="--")
        axes.set_xlim(-0.6, len(weights) - 0.4)
        axes.set_ylim(0, max(float(weights.max()) * 1.08, 1e-6))
        axes.spines[["top", "right"]].set_visible(False)
        target = trace.axes[attention.target]
        about = f", {style.label(target.labels[row])}" if len(target) > 1 else ""
        axes.set_title(f"{style.text(trace.axes[attention.source].title)}{about}", fontsize=style.size, loc="left")
    panels[-1].set_xlabel("channel")
    drawn.supylabel("weight" if any("weight" in attention.extras for attention in chosen) else "share of the weights")
    return drawn


def terminal(selection: Selection) -> list[str]:
    """The weights of each row as bars, and which channels have the largest ones."""
    applied = selection.attention.extras.get("weight", selection.weights)[: selection.rows]
    labels = row_labels(selection.target.labels[: selection.rows], selection.screen)
    return with_notes(selection, bar_lines(labels, applied, selection.screen))


def bar_lines(labels: Sequence[str], weights: NDArray[np.float32], screen: Screen) -> list[str]:
    """Return weights ``(row, channel)`` as bars, one character a channel, or as digits where the terminal has no bars.

    Example:
        >>> bar_lines(["block 0"], np.array([[0.1, 0.8, 0.45]], np.float32), Screen())
        ['block 0  ▁█▅  largest: 1 (0.80), 2 (0.45), 0 (0.10)']
    """
    lines = []
    marks, columns = _DIGITS if screen.blocks == PLAIN else _BARS, screen.columns
    for label, row in zip(labels, weights):
        highest = float(row.max()) or 1.0
        levels = np.clip(np.ceil(row / highest * len(marks)).astype(int) - 1, 0, len(marks) - 1)
        bars = "".join(marks[level] for level in levels)
        first = np.argsort(-row, kind="stable")[:3]
        told = "largest: " + ", ".join(f"{cell} ({row[cell]:.2f})" for cell in first)
        if width(label) + len(bars) + len(told) + 4 <= columns:
            lines.append(f"{label}  {bars}  {told}")
        else:
            lines += [label, *(bars[start : start + columns] for start in range(0, len(bars), columns)), told]
    return lines
