"""A document with its words shaded by their weight, and beside each sentence a bar as long as its share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foci.viz.axis import Axis
from foci.viz.colors import ink
from foci.viz.figure import canvas
from foci.viz.figure.measured_text import measure, wrapped

_WIDTH = 7.8
"""Of the figure in inches, by default."""
_SPACING = 1.95
"""From line to line, in sizes of the letters."""
_GAP = 0.09
"""Between two words, in inches."""
_BAR = 0.55
"""The length of the bar of a sentence that has all of the weight."""
_MARGIN = 0.1
ABOVE = 0.4
"""Room for the title."""
_BELOW = 0.62
"""Room for the legend."""
_GREY = "#8c8c8c"


class ShadedDocument:
    """A document and its scale of colors, to be drawn as a part of a figure: where every word stands, in inches.

    Args:
        axis: the words in their sentences.
        weights: of the words.
        shares: of the sentences.
        style: how weights are drawn.
    """

    def __init__(
        self, axis: Axis, weights: NDArray[np.float32], shares: NDArray[np.float32], style: canvas.FigureStyle
    ) -> None:
        self._axis, self._weights, self._shares, self._size = axis, weights, shares, style.size
        self._lengths = axis.sentence_lengths
        self._words = [style.label(label) for label in axis.labels]
        self._norm = style.norm(0.0, float(weights.max(initial=0.0)) or 1.0)
        measured = measure([*self._words, "100 %"], style.size)
        self._widths = [measured[word] for word in self._words]
        self._bars = _MARGIN + measured["100 %"] + 0.06
        self._text = self._bars + _BAR + 2 * _MARGIN
        self.width = style.width or _WIDTH
        self._places = _broken(self._widths, self._lengths, self.width - self._text - _MARGIN)
        self._line = _SPACING * style.size / 72
        self._inside = self._line * (max((line for line, _ in self._places), default=0) + 1) + 2 * _MARGIN
        self.height = self._inside + _BELOW

    def draw(self, figure: canvas.Figure, bottom: float) -> None:
        """Draw it with its lower edge ``bottom`` inches above that of the figure."""
        total = float(figure.get_figheight())
        axes = figure.add_axes((0.0, (bottom + _BELOW) / total, 1.0, self._inside / total))
        canvas.bare(axes)
        axes.set_xlim(0, self.width)
        axes.set_ylim(self._inside, 0)
        if self._axis.right_to_left:
            axes.invert_xaxis()
        self._draw_sentences(axes)
        self._draw_words(axes)
        self._draw_legend(figure, bottom)

    def _draw_sentences(self, axes: canvas.Axes) -> None:
        """Draw the share of each sentence, as a number and as a bar on its first line."""
        from matplotlib.patches import Rectangle

        side = "left" if self._axis.right_to_left else "right"  # where a text ends that stands before something
        for end, length, share in zip(np.cumsum(self._lengths), self._lengths, self._shares):
            if not length:
                continue
            middle = _MARGIN + (self._places[end - length][0] + 0.5) * self._line
            axes.text(self._bars - 0.06, middle, f"{100 * share:.0f} %", ha=side, va="center", fontsize=self._size)
            height = 0.55 * self._line
            corner = self._bars, middle - height / 2
            axes.add_patch(Rectangle(corner, _BAR, height, facecolor="none", edgecolor=_GREY, linewidth=0.5))
            filled = _BAR * min(float(share), 1.0)
            axes.add_patch(Rectangle(corner, filled, height, facecolor=_GREY, gid="sentence"))

    def _draw_words(self, axes: canvas.Axes) -> None:
        """Draw each word on the color of its weight."""
        from matplotlib.patches import Rectangle

        colors = canvas.colors()
        for word, weight, (line, start), width in zip(self._words, self._weights, self._places, self._widths):
            top, left = _MARGIN + line * self._line, self._text + start - _GAP / 2
            share, size = float(self._norm(float(weight))), (width + _GAP, self._line - 0.04)
            axes.add_patch(Rectangle((left, top + 0.02), *size, facecolor=colors(share), linewidth=0, gid="word"))
            middle = left + (width + _GAP) / 2, top + self._line / 2
            axes.text(*middle, word, ha="center", va="center", fontsize=self._size, color=ink(share))

    def _draw_legend(self, figure: canvas.Figure, bottom: float) -> None:
        """Draw the scale of the words' colors, and what the bars are."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.ticker import PercentFormatter

        height, norm = float(figure.get_figheight()), self._norm
        length = min(2.4, 0.4 * self.width)
        left = self._text / self.width
        axes = figure.add_axes((left, (bottom + _BELOW - 0.2) / height, length / self.width, 0.11 / height))
        bar = figure.colorbar(ScalarMappable(norm, canvas.colors()), cax=axes, orientation="horizontal")
        bar.outline.set(edgecolor="#c8c8c8", linewidth=0.5)
        decimals = 0 if (norm.vmax or 0.0) > 0.04 else 1
        bar.ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=decimals, symbol=" %"))
        bar.ax.locator_params(nbins=4)
        bar.set_label("weight of a word", fontsize=self._size)
        note = wrapped("share of the sentence", self._text - _MARGIN, self._size)
        place = _MARGIN / self.width, (bottom + _BELOW - 0.09) / height
        figure.text(*place, note, va="top", fontsize=self._size, color="#555555")


def _broken(widths: list[float], lengths: tuple[int, ...], room: float) -> list[tuple[int, float]]:
    """Where each word stands, (line, distance from the margin): a sentence begins a line and is broken where needed."""
    places: list[tuple[int, float]] = []
    line, number = 0, 0
    for length in lengths:
        used = 0.0
        for width in widths[number : number + length]:
            if used and used + width > room:
                line, used = line + 1, 0.0
            places.append((line, used))
            used += width + _GAP
        number += length
        line += 1
    return places
