"""A picture of attention over attention: the document as it was read, and both attentions and their product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foci.viz import canvas
from foci.viz.colors import ink
from foci.viz.document_attention import shares_of_sentences
from foci.viz.measured_text import LINE, SMALLEST, Fitted, measure, wrapped
from foci.viz.plot_document import ABOVE, ShadedDocument
from foci.viz.reading import PRODUCT, Reading, reading
from foci.viz.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW = 0.2
"""Height of a row of the maps, in inches."""
_COLUMN = 0.22
"""The least width of a column, which holds a number."""
_FEWEST = 3
"""Columns of the narrowest map."""
_GAP = 0.14
"""Between two panels."""
_MARGIN = 0.1
_IMPORTANCE = 0.85
"""Width of the bars with their numbers."""
_ALPHA, _BETA = "read of the document by each word of the question", "read of the question by each word of the document"
_BARS = "mean: how much it counts"
_PRODUCT = "product"


def reading_plot(trace: Trace, formatter: canvas.TextFormatter, style: canvas.FigureStyle) -> Figure:
    """The document shaded by what was read, and both attentions of the words that matter most, in per cent."""
    from foci.viz.figures import NotebookFigure

    found = reading(trace)
    attention = trace.attentions[PRODUCT]
    weights = attention.dense()[0]
    lengths = found.document.sentences or (len(found.document),)
    shares = shares_of_sentences(trace, attention, weights, lengths)
    shaded = ShadedDocument(found.document, weights, shares, formatter, style)
    panels = _Panels(found, formatter, style, shaded.width)
    if fewer := panels.most_columns(len(found.columns)):
        panels = _Panels(reading(trace, fewer), formatter, style, shaded.width)
    figure = NotebookFigure(figsize=(shaded.width, ABOVE + shaded.height + panels.height))
    shaded.draw(figure, panels.height)
    panels.draw(figure)
    return figure


class _Panels:
    """Where the two maps, the bars and the product stand, in inches from the lower edge of the figure."""

    def __init__(
        self, found: Reading, formatter: canvas.TextFormatter, style: canvas.FigureStyle, width: float
    ) -> None:
        self.found, self.style = found, style
        self.rows = [formatter.label(found.question.labels[row]) for row in found.rows]
        columns = [formatter.label(found.document.labels[column]) for column in found.columns]
        named = [*self.rows, _PRODUCT]
        self.left = 2 * _MARGIN + max(measure(named, style.size).values())
        self.map_width = (width - self.left - _IMPORTANCE - 2 * _GAP - _MARGIN) / 2
        longest = max(measure(columns, style.size).values(), default=0.0)
        self.columns = Fitted(columns, 1, 90, style.size, longest)
        titles = (_ALPHA, _BETA, _BARS)
        sizes = (self.map_width, self.map_width, _IMPORTANCE)
        self.titles = [wrapped(title, size, style.size) for title, size in zip(titles, sizes)]
        self.title_height = LINE * style.size / 72 * max(title.count("\n") + 1 for title in self.titles) + 0.08
        self.map_height = _ROW * max(len(self.rows), 1)
        shown = f"{len(columns)} of {len(found.document)} words of the document, {len(self.rows)} of "
        told = f"In per cent; {shown}{len(found.question)} words of the question."
        self.note = wrapped(told, width - self.left - _MARGIN, SMALLEST)
        note_height = LINE * SMALLEST / 72 * (self.note.count("\n") + 1)
        self.map_bottom = self.columns.room + 0.15 + note_height + _ROW + _GAP
        self.height = self.map_bottom + self.map_height + self.title_height

    def most_columns(self, columns: int) -> int | None:
        """Return how many columns have room for their numbers; None where all have."""
        room = max(int(self.map_width / _COLUMN), _FEWEST)
        return room if room < columns else None

    def draw(self, figure: Figure) -> None:
        """Draw all of them."""
        found = self.found
        right = self.left + self.map_width + _GAP
        alpha = self._axes(figure, self.left, self.map_bottom, self.map_width, self.map_height, self.titles[0])
        beta = self._axes(figure, right, self.map_bottom, self.map_width, self.map_height, self.titles[1])
        product = self._axes(figure, self.left, self.map_bottom - _GAP - _ROW, self.map_width, _ROW)
        for axes, weights in ((alpha, found.alpha), (beta, found.beta), (product, found.product[None])):
            self._map(axes, weights)
        alpha.set_yticks(range(len(self.rows)), self.rows)
        product.set_yticks([0], [_PRODUCT])
        for axes in (product, beta):
            self.columns.write(axes.xaxis)
        for axes in (alpha, product):
            axes.tick_params(length=0)
        across, up = float(figure.get_figwidth()), float(figure.get_figheight())
        figure.text(self.left / across, 0.02 / up, self.note, va="bottom", fontsize=SMALLEST, color="#555555")
        bars = right + self.map_width + _GAP
        self._bars(self._axes(figure, bars, self.map_bottom, _IMPORTANCE, self.map_height, self.titles[2]))

    def _axes(self, figure: Figure, left: float, bottom: float, width: float, height: float, title: str = "") -> Axes:
        across, up = float(figure.get_figwidth()), float(figure.get_figheight())
        axes = figure.add_axes((left / across, bottom / up, width / across, height / up))
        canvas.bare(axes)
        axes.set_title(title, fontsize=self.style.size, pad=4)
        return axes

    def _map(self, axes: Axes, weights: NDArray[np.float32]) -> None:
        largest = float(weights.max(initial=0.0))
        norm = self.style.norm(0.0, largest or 1.0)
        decimals = 0 if largest >= 0.095 else 1
        axes.imshow(weights, cmap=canvas.colors(), norm=norm, aspect="auto", interpolation="nearest")
        for (row, column), weight in np.ndenumerate(weights):
            if weight >= 0.005:
                color = ink(float(norm(float(weight))))
                text = f"{100 * weight:.{decimals}f}"
                axes.text(column, row, text, ha="center", va="center", fontsize=SMALLEST, color=color)
        if self.found.document.right_to_left:
            axes.invert_xaxis()
        axes.spines[:].set(visible=True, color="#c8c8c8", linewidth=0.5)

    def _bars(self, axes: Axes) -> None:
        importance = self.found.importance
        axes.barh(range(len(importance)), importance, height=0.6, color="#8c8c8c")
        axes.set_ylim(len(importance) - 0.5, -0.5)
        axes.set_xlim(0, 1.9 * (float(importance.max(initial=0.0)) or 1.0))
        for row, share in enumerate(importance):
            axes.text(share, row, f" {100 * share:.0f} %", va="center", fontsize=SMALLEST)
