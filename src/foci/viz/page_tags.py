"""Tagged words as a piece of the page: labels in color, and under each word, on hover, the probabilities of its tags.

It is plain HTML without script: colors are classes of the page's style sheet, because the page's policy allows no
styles of single elements, and what appears on hover is the ``title`` of a word.
"""

from __future__ import annotations

import html

import numpy as np
from numpy.typing import NDArray

from foci.printable import printable
from foci.viz.axis import Axis
from foci.viz.tagged_words import HUES, hues, pieces
from foci.viz.trace import Trace

LEVELS = 5
"""How many shades a label's probability has."""
_TOLD = 5
"""How many tags of a word are told on hover, those above one in a thousand."""


def tagged_html(trace: Trace) -> str:
    """Return the tagged words of a trace as HTML; nothing where it has none.

    Example:
        >>> from foci.viz.axis import Mark
        >>> words = Axis("tokens", ("at", "7"), marks=(Mark(1, 1, "time", 0.875),))
        >>> trace = Trace.from_arrays([[1.0, 0.0], [0.125, 0.875]], Axis("tags", ("O", "B-time")), words)
        >>> print(tagged_html(trace))
        <p class="tagged" dir="auto">
        <span title="O 100.0 %">at</span>
        <mark class="hue-0 sure-5"><span title="B-time 87.5 %, O 12.5 %">7</span> <b>time</b> 88 %</mark>
        </p>
    """
    for attention in trace.attentions.values():
        words, tags = trace.axes[attention.target], trace.axes[attention.source]
        if tags.kind == "tags" and words.marks is not None:
            return _sentence(words, tags, attention.dense())
    return ""


def _sentence(words: Axis, tags: Axis, shares: NDArray[np.float32]) -> str:
    number = {hue: place for place, hue in enumerate(HUES)}
    by_label = hues(words)
    lines = ['<p class="tagged" dir="auto">']
    for some, mark in pieces(words):
        told = " ".join(_word(words.labels[word], tags, shares[word]) for word in some)
        if mark is not None:
            level = min(int(mark.share * LEVELS) + 1, LEVELS)
            classes = f"hue-{number[by_label[mark.label]]} sure-{level}"
            told = f'<mark class="{classes}">{told} <b>{safe(mark.label)}</b> {100 * mark.share:.0f} %</mark>'
        lines.append(told)
    return "\n".join([*lines, "</p>"])


def _word(word: str, tags: Axis, shares: NDArray[np.float32]) -> str:
    order = [tag for tag in np.argsort(-shares, kind="stable")[:_TOLD] if shares[tag] >= 0.001]
    told = ", ".join(f"{safe(tags.labels[tag])} {100 * shares[tag]:.1f} %" for tag in order)
    return f'<span title="{told}">{safe(word)}</span>'


def safe(text: str) -> str:
    """Return the text as HTML that shows it as it is."""
    return html.escape(printable(text)).encode("ascii", "xmlcharrefreplace").decode("ascii")
