"""Words with their labels: what a tagger has found, and the probabilities of the tags.

The labels of a trace are the marks of its words (`foci.viz.axis.Mark`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foci.errors import ConfigError
from foci.viz.axis import Axis, Mark
from foci.viz.figure import canvas
from foci.viz.figure.shaded_words import draw_words
from foci.viz.labels import shown
from foci.viz.page.html import mark as marked
from foci.viz.page.html import safe
from foci.viz.selection import Selection
from foci.viz.shaded_words import HUES, ShadedWord
from foci.viz.terminal.sheet import heading
from foci.viz.terminal.words import word_lines
from foci.viz.trace import Trace, TracedAttention

_SURE = 0.95
"""The terminal lists the tags of a word unless one of them has at least this probability."""
_LISTED, _LEAST = 3, 0.005
"""How many tags of such a word, and how probable they are at least."""
_HOVERED, _LEAST_HOVERED = 5, 0.001
"""The same for the page, on hover."""


class Piece(NamedTuple):
    """Words of a sentence that belong together: those of one mark, or a single one without any."""

    words: range
    mark: Mark | None


def fits(selection: Selection) -> bool:
    """What is read are tags, and the words have marks."""
    return selection.source.kind == "tags" and selection.target.marks is not None


def attention(trace: Trace, name: str | None = None) -> TracedAttention:
    """Return the attention of words to tags: of this name, or else the first that has marked words."""
    for one in trace.attentions_to("tags", name):
        if trace.axes[one.target].marks is not None:
            return one
    raise ConfigError(
        "view 'tags' needs words with marks, and the probabilities of their tags, as a tagger gives them."
    )


def pieces(axis: Axis) -> Iterator[Piece]:
    """Yield all words, those of a mark together.

    Example:
        >>> axis = Axis("tokens", ("at", "7", "pm"), marks=(Mark(1, 2, "time", 0.9),))
        >>> [(list(words), mark.label if mark else None) for words, mark in pieces(axis)]
        [([0], None), ([1, 2], 'time')]
    """
    done = 0
    for mark in axis.marks or ():
        yield from (Piece(range(word, word + 1), None) for word in range(done, mark.first))
        yield Piece(range(mark.first, mark.last + 1), mark)
        done = mark.last + 1
    yield from (Piece(range(word, word + 1), None) for word in range(done, len(axis)))


def hues(axis: Axis) -> dict[str, str]:
    """Return a hue for each label, by the order of their names.

    Example:
        >>> hues(Axis("tokens", ("a", "b"), marks=(Mark(0, 0, "x", 1.0), Mark(1, 1, "w", 1.0))))
        {'w': '#56b4e9', 'x': '#e69f00'}
    """
    labels = sorted({mark.label for mark in axis.marks or ()})
    return {label: HUES[place % len(HUES)] for place, label in enumerate(labels)}


def _words(axis: Axis, visible: Callable[[str], str] = str) -> Iterator[ShadedWord]:
    by_label = hues(axis)
    for some, mark in pieces(axis):
        text = " ".join(visible(axis.labels[word]) for word in some)
        if mark is None:
            yield ShadedWord(text)
        else:
            note = f"{visible(mark.label)} {100 * mark.share:.0f} %"
            yield ShadedWord(text, by_label[mark.label], mark.share, note)


def _likely(tags: Axis, shares: NDArray[np.float32], most: int, least: float) -> list[tuple[str, float]]:
    order = np.argsort(-shares, kind="stable")[:most]
    return [(tags.labels[tag], 100 * float(shares[tag])) for tag in order if shares[tag] >= least]


def figure(trace: Trace, style: canvas.FigureStyle, name: str | None = None) -> canvas.Figure:
    """The words in lines; a label's hue is paler where it is less sure."""
    axis = trace.axes[attention(trace, name).target]
    return draw_words([_words(axis)], [axis.right_to_left], style)


def terminal(selection: Selection) -> list[str]:
    """A sentence with its labels, and the tags of words that are not sure."""
    words = selection.target
    lines = [heading(selection), *word_lines(_words(words, shown), selection.screen)]
    for label, shares in zip(words.labels, selection.weights):
        if shares.size and shares.max() < _SURE:
            likely = _likely(selection.source, shares, _LISTED, _LEAST)
            lines.append(f"{shown(label)}: " + ", ".join(f"{shown(tag)} {percent:.0f} %" for tag, percent in likely))
    return lines


def page(trace: Trace) -> str:
    """Return the tagged words of a trace as HTML; nothing where it has none.

    Example:
        >>> words = Axis("tokens", ("at", "7"), marks=(Mark(1, 1, "time", 0.875),))
        >>> trace = Trace.from_arrays([[1.0, 0.0], [0.125, 0.875]], Axis("tags", ("O", "B-time")), words)
        >>> print(page(trace))
        <p class="tagged" dir="auto">
        <span title="O 100.0 %">at</span>
        <mark class="hue-0 sure-5"><span title="B-time 87.5 %, O 12.5 %">7</span> <b>time</b> 88 %</mark>
        </p>
    """
    try:
        one = attention(trace)
    except ConfigError:
        return ""
    words, tags, shares = trace.axes[one.target], trace.axes[one.source], one.dense()
    by_label = hues(words)
    lines = ['<p class="tagged" dir="auto">']
    for some, mark in pieces(words):
        text = " ".join(_hovered(words.labels[word], tags, shares[word]) for word in some)
        if mark is not None:
            note = f"<b>{safe(mark.label)}</b> {100 * mark.share:.0f} %"
            text = marked(by_label[mark.label], mark.share, f"{text} {note}")
        lines.append(text)
    return "\n".join([*lines, "</p>"])


def _hovered(word: str, tags: Axis, shares: NDArray[np.float32]) -> str:
    likely = _likely(tags, shares, _HOVERED, _LEAST_HOVERED)
    title = ", ".join(f"{safe(tag)} {percent:.1f} %" for tag, percent in likely)
    return f'<span title="{title}">{safe(word)}</span>'
