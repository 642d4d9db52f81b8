"""Pictures of tagged and of copied words: colored stretches with a label below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foci.viz import canvas
from foci.viz.copied_words import ShadedWord, copied_attention, copied_words
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


def tags(trace: Trace, formatter: canvas.TextFormatter, style: canvas.FigureStyle, name: str | None = None) -> Figure:
    """The words in lines; a label's hue is paler where it is less sure."""
    attention = tagged_attention(trace, name)
    axis = trace.axes[attention.target]
    by_label = hues(axis)
    words = []
    for some, mark in pieces(axis):
        text = " ".join(axis.labels[word] for word in some)
        if mark is None:
            words.append(ShadedWord(text))
        else:
            words.append(ShadedWord(text, by_label[mark.label], mark.share, f"{mark.label} {100 * mark.share:.0f} %"))
    return _draw([words], [axis.right_to_left], formatter, style)


def copied(trace: Trace, formatter: canvas.TextFormatter, style: canvas.FigureStyle) -> Figure:
    """The produced words with p_gen, and below them their text; a copied word has the same hue and number in both."""
    attention = copied_attention(trace)
    words = copied_words(trace)
    sides = [trace.axes[side].right_to_left for side in (attention.target, attention.source)]
    return _draw([words.target, words.source], sides, formatter, style)


def _draw(
    blocks: Sequence[Sequence[ShadedWord]],
    right_to_left: Sequence[bool],
    formatter: canvas.TextFormatter,
    style: canvas.FigureStyle,
) -> Figure:
    """Draw blocks of words in lines, each with what is told of it below."""
    from matplotlib.patches import Rectangle

    from foci.viz.figures import NotebookFigure

    width = (style.width or _WIDTH) - 2 * _MARGIN
    placed = []
    line = -1
    for block, reversed_ in zip(blocks, right_to_left):
        line, used = line + 1, 0.0
        for word in block:
            text, told = formatter(word.text), formatter(word.told)
            size = max(measure([text], style.size)[text], measure([told], SMALLEST)[told]) + _GAP
            if used and used + size > width:
                line, used = line + 1, 0.0
            left = width - used - size if reversed_ else used
            placed.append((line, left, size, text, told, word))
            used += size + _GAP
    height = _LINE * (line + 1) + 2 * _MARGIN
    figure = NotebookFigure(figsize=(width + 2 * _MARGIN, height + 0.4))
    axes = figure.add_axes((0.0, 0.0, 1.0, height / (height + 0.4)))
    canvas.bare(axes)
    axes.set_xlim(0, width + 2 * _MARGIN)
    axes.set_ylim(height, 0)
    for row, left, size, text, told, word in placed:
        top = _MARGIN + row * _LINE
        middle = _MARGIN + left + size / 2
        if word.hue is not None:
            color = tuple(part / 255 for part in shade(word.hue, word.share))
            box = Rectangle((_MARGIN + left, top), size, 0.6 * _LINE, facecolor=color, gid="mark")
            axes.add_patch(box)
        if told:
            axes.text(middle, top + 0.78 * _LINE, told, ha="center", va="center", fontsize=SMALLEST, color="#444444")
        axes.text(middle, top + 0.3 * _LINE, text, ha="center", va="center", fontsize=style.size, color="black")
    return figure
