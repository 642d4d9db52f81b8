"""Words with their labels: one hue per label, paler where the label is less sure.

The labels of a trace are the marks of its words (`foci.viz.axis.Mark`). The hues are eight that color-blind readers
can tell apart (Okabe, Ito, 2008), lightened so that black text can be read on each; a ninth label has the first hue
again, and the label is written beside its words in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from foci.errors import ConfigError
from foci.viz.axis import Axis, Mark
from foci.viz.trace import Trace, TracedAttention

HUES = ("#56b4e9", "#e69f00", "#33c49a", "#f0e442", "#e08fbf", "#7da7d9", "#f08c4a", "#b8b8b8")
_PALEST = 0.25
"""How much of its hue a label has whose probability is 0."""


class Piece(NamedTuple):
    """Words of a sentence that belong together: those of one mark, or a single one without any."""

    words: range
    mark: Mark | None


def tagged_attention(trace: Trace, name: str | None = None) -> TracedAttention:
    """Return the attention of words to tags: of this name, or else the first that has marked words."""
    for attention in trace.attentions.values() if name is None else [trace.attention(name)]:
        if trace.axes[attention.source].kind == "tags" and trace.axes[attention.target].marks is not None:
            return attention
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


def shade(hue: str, share: float) -> tuple[int, int, int]:
    """Return red, green and blue of a label that is ``share`` sure: from a pale hue to a full one.

    Example:
        >>> shade("#000000", 1.0), shade("#000000", 0.0)
        ((0, 0, 0), (191, 191, 191))
    """
    strength = _PALEST + (1 - _PALEST) * min(max(share, 0.0), 1.0)
    red, green, blue = (round(255 + (int(hue[place : place + 2], 16) - 255) * strength) for place in (1, 3, 5))
    return red, green, blue
