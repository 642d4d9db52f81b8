"""A document with its words shaded by their weight, and beside each sentence a bar as long as its share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foci.viz.axis import Axis
from foci.viz.colors import ink
from foci.viz.figure import canvas
from foci.viz.figure.measured_text import measure, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

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
    """A document and its scale of colors, to be drawn as a part of a figure.

    Args:
        axis: the words in their sentences.
        weights: of the words.
        shares: of the sentences.
        style: how weights are drawn.
    """

    def __init__(
        self,
        axis: Axis,
        weights: NDArray[np.float32],
        shares: NDArray[np.float32],
        style: canvas.FigureStyle,
    ) -> None:
        self._axis, self._weights, self._shares = axis, weights, shares
        self._lengths = axis.sentences or (len(axis),)
        self._words = [style.label(label) for label in axis.labels]
        self._page = _Page.fit(self._words, self._lengths, style)
        self._norm = style.norm(0.0, float(weights.max(initial=0.0)) or 1.0)
        self.width = self._page.width
        self.height = self._page.height + _BELOW

    def draw(self, figure: Figure, bottom: float) -> None:
        """Draw it with its lower edge ``bottom`` inches above that of the figure."""
        total, page = float(figure.get_figheight()), self._page
        axes = figure.add_axes((0.0, (bottom + _BELOW) / total, 1.0, page.height / total))
        canvas.bare(axes)
        axes.set_xlim(0, page.width)
        axes.set_ylim(page.height, 0)
        if self._axis.right_to_left:
            axes.invert_xaxis()
        page.draw_sentences(axes, self._shares, self._lengths)
        page.draw_words(axes, self._words, self._weights, self._norm)
        _legend(figure, self._norm, "weight of a word", page, bottom)


class _Page:
    """Where every word and every sentence stands, in inches."""

    def __init__(self, width: float, size: float, places: list[tuple[int, float]], widths: list[float]) -> None:
        self.width, self.size, self.places, self.widths = width, size, places, widths
        self.line = _SPACING * size / 72
        self.percent = measure(["100 %"], size)["100 %"]
        self.height = self.line * (max((line for line, _ in places), default=0) + 1) + 2 * _MARGIN

    @property
    def text_starts(self) -> float:
        return _MARGIN + self.percent + 0.06 + _BAR + 2 * _MARGIN

    @classmethod
    def fit(cls, words: list[str], lengths: tuple[int, ...], style: canvas.FigureStyle) -> _Page:
        width = style.width or _WIDTH
        empty = cls(width, style.size, [], [])
        measured = measure(words, style.size)
        widths = [measured[word] for word in words]
        return cls(width, style.size, _broken(widths, lengths, width - empty.text_starts - _MARGIN), widths)

    def draw_sentences(self, axes: Axes, shares: NDArray[np.float32], lengths: tuple[int, ...]) -> None:
        """The share of each sentence, as a number and as a bar on its first line."""
        from matplotlib.patches import Rectangle

        for end, length, share in zip(np.cumsum(lengths), lengths, shares):
            if not length:
                continue
            top = _MARGIN + self.places[end - length][0] * self.line
            middle, left = top + self.line / 2, _MARGIN + self.percent + 0.06
            axes.text(left - 0.06, middle, f"{100 * share:.0f} %", ha=_end(axes), va="center", fontsize=self.size)
            height = 0.55 * self.line
            corner = left, middle - height / 2
            axes.add_patch(Rectangle(corner, _BAR, height, facecolor="none", edgecolor=_GREY, linewidth=0.5))
            filled = _BAR * min(float(share), 1.0)
            axes.add_patch(Rectangle(corner, filled, height, facecolor=_GREY, gid="sentence"))

    def draw_words(self, axes: Axes, words: list[str], weights: NDArray[np.float32], norm: Normalize) -> None:
        """Each word on the color of its weight."""
        from matplotlib.patches import Rectangle

        colors = canvas.colors()
        for word, weight, (line, start), width in zip(words, weights, self.places, self.widths):
            top, left = _MARGIN + line * self.line, self.text_starts + start - _GAP / 2
            share = float(norm(float(weight)))
            box = Rectangle(
                (left, top + 0.02), width + _GAP, self.line - 0.04, facecolor=colors(share), linewidth=0, gid="word"
            )
            axes.add_patch(box)
            middle = left + (width + _GAP) / 2, top + self.line / 2
            axes.text(*middle, word, ha="center", va="center", fontsize=self.size, color=ink(share))


def _end(axes: Axes) -> str:
    """The side where a text ends that stands left of something; on a page from right to left it is the other one."""
    left, right = axes.get_xlim()
    return "right" if left < right else "left"


def _legend(figure: Figure, norm: Normalize, label: str, page: _Page, bottom: float) -> None:
    """The scale of the words' colors, and what the bars are."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.ticker import PercentFormatter

    height = float(figure.get_figheight())
    length = min(2.4, 0.4 * page.width)
    left = page.text_starts / page.width
    axes = figure.add_axes((left, (bottom + _BELOW - 0.2) / height, length / page.width, 0.11 / height))
    bar = figure.colorbar(ScalarMappable(norm, canvas.colors()), cax=axes, orientation="horizontal")
    bar.outline.set(edgecolor="#c8c8c8", linewidth=0.5)
    bar.ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if (norm.vmax or 0.0) > 0.04 else 1, symbol=" %"))
    bar.ax.locator_params(nbins=4)
    bar.set_label(label, fontsize=page.size)
    said = wrapped("share of the sentence", page.text_starts - _MARGIN, page.size)
    figure.text(
        _MARGIN / page.width, (bottom + _BELOW - 0.09) / height, said, va="top", fontsize=page.size, color="#555555"
    )


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
