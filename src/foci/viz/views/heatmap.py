"""A heat map of one attention: the view of everything that has no other."""

from __future__ import annotations

from foci.viz.figure import canvas
from foci.viz.figure.heatmap import Labels, draw
from foci.viz.pictured import images_as_one
from foci.viz.selection import Selection
from foci.viz.terminal.sheet import sheet_of, with_notes
from foci.viz.trace import Trace


def fits(selection: Selection) -> bool:
    """Any attention can be shown as a heat map."""
    return True


def figure(trace: Trace, style: canvas.FigureStyle, name: str | None = None, head: int | None = None) -> canvas.Figure:
    """Rows and columns with their labels, and what else could have been drawn as a title."""
    selection = images_as_one(Selection(trace, name, head))
    weights = style.scaled(selection.weights)
    about = ", ".join([selection.attention.name, *selection.notes]) if selection.notes else ""
    labels = Labels.from_axes(
        selection.target,
        selection.source,
        style.title(trace.measure),
        panels=[about] if about else None,
        hatched=canvas.meaning_of_zero([selection.attention]),
    )
    return draw(weights, labels, style, right_to_left=selection.source.right_to_left)


def terminal(selection: Selection) -> list[str]:
    """A block or a color for each weight."""
    selection = images_as_one(selection)
    return with_notes(selection, sheet_of(selection).heat())
