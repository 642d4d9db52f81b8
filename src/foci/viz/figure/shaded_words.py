"""Pictures of words on colors, with a label below them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foci.viz.figure import canvas
from foci.viz.figure.measured_text import SMALLEST, measure
from foci.viz.shaded_words import ShadedWord, shade

_WIDTH = 7.2
"""Of the figure, in inches, by default."""
_LINE = 0.5
"""Height of a line of words with the labels below it."""
_GAP = 0.09
_MARGIN = 0.1


def draw_words(
    blocks: Sequence[Iterable[ShadedWord]],
    right_to_left: Sequence[bool],
    style: canvas.FigureStyle,
) -> canvas.Figure:
    """Draw blocks of words in lines, each with its note below.

    Args:
        blocks: of words; each begins a line.
        right_to_left: whether the lines of each block run from right to left.
        style: of the figure.
    """
    from matplotlib.patches import Rectangle

    width = (style.width or _WIDTH) - 2 * _MARGIN
    placed = []
    line = -1
    for block, reversed_ in zip(blocks, right_to_left):
        line, used = line + 1, 0.0
        for word in block:
            text, note = style.text(word.text), style.text(word.note)
            size = max(measure([text], style.size)[text], measure([note], SMALLEST)[note]) + _GAP
            if used and used + size > width:
                line, used = line + 1, 0.0
            left = width - used - size if reversed_ else used
            placed.append((line, left, size, text, note, word))
            used += size + _GAP
    height = _LINE * (line + 1) + 2 * _MARGIN
    figure = canvas.new_figure(width + 2 * _MARGIN, height + 0.4)
    axes = figure.add_axes((0.0, 0.0, 1.0, height / (height + 0.4)))
    canvas.bare(axes)
    axes.set_xlim(0, width + 2 * _MARGIN)
    axes.set_ylim(height, 0)
    for row, left, size, text, note, word in placed:
        top = _MARGIN + row * _LINE
        middle = _MARGIN + left + size / 2
        if word.hue is not None:
            color = tuple(part / 255 for part in shade(word.hue, word.share))
            box = Rectangle((_MARGIN + left, top), size, 0.6 * _LINE, facecolor=color, gid="mark")
            axes.add_patch(box)
        if note:
            axes.text(middle, top + 0.78 * _LINE, note, ha="center", va="center", fontsize=SMALLEST, color="#444444")
        axes.text(middle, top + 0.3 * _LINE, text, ha="center", va="center", fontsize=style.size, color="black")
    return figure
