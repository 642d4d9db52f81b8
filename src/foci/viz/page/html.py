"""Pieces of HTML for the page, without script.

Colors are classes of the page's style sheet, because the page's policy allows no styles of single elements, and what
appears on hover is the ``title`` of a word.
"""

from __future__ import annotations

import html

from foci.printable import printable
from foci.viz.shaded_words import HUES

_LEVELS = 5
"""How many shades a hue has."""


def escaped(text: str) -> str:
    """Return the text as HTML in ASCII, also where it has half of a character that UTF-8 cannot write."""
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode("ascii")


def safe(text: str) -> str:
    """Return the text as HTML that shows it as it is."""
    return escaped(printable(text))


def mark(hue: str, share: float, inside: str, more: str = "") -> str:
    """Return HTML on a hue that is as strong as the share, from 0 to 1; ``more`` are further attributes."""
    level = min(int(share * _LEVELS) + 1, _LEVELS)
    return f'<mark class="hue-{HUES.index(hue)} sure-{level}"{more}>{inside}</mark>'
