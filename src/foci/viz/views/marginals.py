"""Probabilities of tags as a map of words and tags."""

from __future__ import annotations

from foci.viz.figure import canvas
from foci.viz.figure.heatmap import Labels, draw
from foci.viz.selection import Selection
from foci.viz.trace import Trace

_READABLE = 24
"""With more columns than this, numbers in the cells are left out."""


def fits(selection: Selection) -> bool:
    """What is read are tags."""
    return selection.source.kind == "tags"


def figure(trace: Trace, style: canvas.FigureStyle, name: str | None = None) -> canvas.Figure:
    """A row for each word, with the probabilities in per cent where there are few tags."""
    selection = Selection(trace, name)
    shares = selection.attention.dense()
    texts = [[f"{100 * share:.0f} %" for share in line] for line in shares] if shares.shape[1] <= _READABLE else None
    labels = Labels.from_axes(selection.target, selection.source, style.title("probability"), texts=texts)
    scaled = style.scaled(shares)
    return draw(scaled, labels, style, right_to_left=selection.source.right_to_left)
