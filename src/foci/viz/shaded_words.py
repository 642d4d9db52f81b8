"""Words on colors: one hue per label, paler where the label is less sure.

The hues are eight that color-blind readers can tell apart (Okabe, Ito, 2008), lightened so that black text can be read
on each; a ninth label has the first hue again, and the label is written beside its words in any case.
"""

from __future__ import annotations

from typing import NamedTuple

HUES = ("#56b4e9", "#e69f00", "#33c49a", "#f0e442", "#e08fbf", "#7da7d9", "#f08c4a", "#b8b8b8")
_PALEST = 0.25
"""How much of its hue a label has whose probability is 0."""


class ShadedWord(NamedTuple):
    """A word with a hue, or none, how strong it is from 0 to 1, and what is written beside it."""

    text: str
    hue: str | None = None
    share: float = 1.0
    note: str = ""


def shade(hue: str, share: float) -> tuple[int, int, int]:
    """Return red, green and blue of a label that is ``share`` sure: from a pale hue to a full one.

    Example:
        >>> shade("#000000", 1.0), shade("#000000", 0.0)
        ((0, 0, 0), (191, 191, 191))
    """
    strength = _PALEST + (1 - _PALEST) * min(max(share, 0.0), 1.0)
    red, green, blue = (round(255 + (int(hue[place : place + 2], 16) - 255) * strength) for place in (1, 3, 5))
    return red, green, blue
