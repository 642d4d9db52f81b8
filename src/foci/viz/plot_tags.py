"""A picture of tagged words: each label a coloured stretch with its name and probability below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foci.viz import canvas
from foci.viz.measured_text import SMALLEST, measure
from foci.viz.tagged_words import hues, pieces, shade, tagged_attention
from foci.viz.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 7.2
"""Of the figure, in inches, unless it is given."""
_LINE = 0.5
"""Height of a line of words with the labels below it."""
_GAP = 0.09
_MARGIN = 0.1


def tags(trace: Trace, spell: canvas.Spelling, look: canvas.Look, name: str | None = None) -> Figure:
    """The words in lines; a label's hue is paler where it is less sure."""
    from matplotlib.patches import Rectangle

    from foci.viz.figures import NotebookFigure

    attention = tagged_attention(trace, name)
    cells = trace.cells[attention.target]
    by_label = hues(cells)
    width = (look.width or _WIDTH) - 2 * _MARGIN
    placed = []
    line, used = 0, 0.0
    for some, mark in pieces(cells):
        text = " ".join(spell(cells.labels[word]) for word in some)
        told = "" if mark is None else f"{spell(mark.label)} {100 * mark.share:.0f} %"
        size = max(measure([text], look.size)[text], measure([told], SMALLEST)[told]) + _GAP
        if used and used + size > width:
            line, used = line + 1, 0.0
        placed.append((line, used, size, text, told, mark))
        used += size + _GAP
    height = _LINE * (line + 1) + 2 * _MARGIN
    figure = NotebookFigure(figsize=(width + 2 * _MARGIN, height + 0.4))
    axes = figure.add_axes((0.0, 0.0, 1.0, height / (height + 0.4)))
    canvas.bare(axes)
    axes.set_xlim(0, width + 2 * _MARGIN)
    axes.set_ylim(height, 0)
    if cells.right_to_left:
        axes.invert_xaxis()
    for row, left, size, text, told, mark in placed:
        top = _MARGIN + row * _LINE
        middle = _MARGIN + left + size / 2
        if mark is not None:
            colour = tuple(part / 255 for part in shade(by_label[mark.label], mark.share))
            box = Rectangle((_MARGIN + left, top), size, 0.6 * _LINE, facecolor=colour, gid="mark")
            axes.add_patch(box)
            axes.text(middle, top + 0.78 * _LINE, told, ha="center", va="center", fontsize=SMALLEST, color="#444444")
        axes.text(middle, top + 0.3 * _LINE, text, ha="center", va="center", fontsize=look.size, color="black")
    return figure
