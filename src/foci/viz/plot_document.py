"""A document with its words shaded by their weight, and each sentence marked by its share.

Words are shaded in blues and sentences in reds, from white: both can be read in print, and no eye confuses the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foci.errors import ConfigError
from foci.viz import canvas
from foci.viz.document_attention import over_words, shares_of_sentences
from foci.viz.text_layout import word_widths
from foci.viz.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

_WIDTH = 7.0
"""Of the text, in inches."""
_LINE = 0.25
_GAP = 0.09
"""Between two words, in inches."""
_MARK = 0.3
"""Width of a sentence's mark."""
_MARGIN = 0.1
_SIZE = 9
"""Of the letters, in points."""
_DARKEST = 0.8
"""How far into the scale of colours the highest weight goes."""


def document(
    trace: Trace,
    spell: canvas.Spelling,
    name: str | None = None,
    head: int | None = None,
    row: int = 0,
    sentences: str | None = None,
) -> Figure:
    """The words in their sentences. ``sentences`` names the attention over whole sentences, where there is one."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    attention = trace.attention(name) if name is not None else over_words(trace)
    cells = trace.cells[attention.source]
    if not 0 <= row < attention.shape[1]:
        raise ConfigError(f"plot: row is {row}, but {attention.name!r} has {attention.shape[1]} (from 0 on).")
    weights = attention.dense(head)[row]
    lengths = cells.sentences or (len(cells),)
    shares = shares_of_sentences(trace, attention, weights, lengths, sentences, row)
    words = [spell(label) for label in cells.labels]
    widths = word_widths(words, _SIZE)
    lines = _broken(widths, lengths)
    height = _LINE * (max((line for line, _ in lines), default=0) + 1) + 2 * _MARGIN
    figure = Figure(figsize=(_WIDTH + _MARK + 3 * _MARGIN, height + 0.4))
    axes = figure.add_axes((0.0, 0.0, 1.0, height / (height + 0.4)))
    canvas.bare(axes)
    axes.set_xlim(0, _WIDTH + _MARK + 3 * _MARGIN)
    axes.set_ylim(height, 0)
    if cells.right_to_left:
        axes.invert_xaxis()
    of_words, of_sentences = colormaps["Blues"], colormaps["Reds"]
    highest, largest = (float(values.max(initial=0.0)) or 1.0 for values in (weights, shares))
    ends = np.cumsum(lengths)
    for end, length, share in zip(ends, lengths, shares):
        if length:
            first, last = lines[end - length][0], lines[end - 1][0]
            box = _Box(_MARGIN, first, _MARK, last - first + 1)
            box.draw(axes, f"{100 * share:.0f}", of_sentences, float(share) / largest, gid="sentence")
    for word, weight, (line, start), width in zip(words, weights, lines, widths):
        box = _Box(2 * _MARGIN + _MARK + start - _GAP / 2, line, width + _GAP)
        box.draw(axes, word, of_words, float(weight) / highest, gid="word")
    return figure


@dataclass(frozen=True)
class _Box:
    """A shaded piece of a line, or of several, with a text in it."""

    left: float
    line: int
    width: float
    lines: int = 1

    def draw(self, axes: Axes, text: str, colours: Colormap, share: float, gid: str) -> None:
        from matplotlib.patches import Rectangle

        top, height = _MARGIN + self.line * _LINE, self.lines * _LINE
        shade = colours(_DARKEST * share)
        axes.add_patch(Rectangle((self.left, top + 0.02), self.width, height - 0.04, facecolor=shade, gid=gid))
        ink = "white" if share > 0.7 else "black"
        middle = self.left + self.width / 2, top + height / 2
        axes.text(*middle, text, ha="center", va="center", fontsize=_SIZE, color=ink)


def _broken(widths: list[float], lengths: tuple[int, ...]) -> list[tuple[int, float]]:
    """Where each word stands, (line, distance from the margin): a sentence begins a line and is broken where needed."""
    places: list[tuple[int, float]] = []
    line, number = 0, 0
    for length in lengths:
        used = 0.0
        for width in widths[number : number + length]:
            if used and used + width > _WIDTH:
                line, used = line + 1, 0.0
            places.append((line, used))
            used += width + _GAP
        number += length
        line += 1
    return places
