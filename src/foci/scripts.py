"""Scripts that put no spaces between words; there each character with its marks counts as a word."""

from __future__ import annotations

import re

SPACELESS = (  # Thai, Lao, Tibetan, Burmese, Khmer, kana, Han
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Ranges of characters, for the inside of a regular expression's brackets."""

_FIRST = re.compile(f"[{SPACELESS}]")


def begins_spaceless(text: str) -> bool:
    """Return whether the first character is of such a script.

    Example:
        >>> begins_spaceless("猫 cat"), begins_spaceless("cat 猫")
        (True, False)
    """
    return _FIRST.match(text) is not None
