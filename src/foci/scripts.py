"""Scripts that put no spaces between words; there each character with its marks counts as a word."""

from __future__ import annotations

import re
import unicodedata

SPACELESS = (  # Thai, Lao, Tibetan, Burmese, Khmer, kana, Han
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Ranges of characters, for the inside of a regular expression's brackets."""

SPACELESS_SCRIPTS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
"""The same scripts for regular expressions that know the properties of Unicode."""

_FIRST = re.compile(f"[{SPACELESS}]")
_ALONE = re.compile(f"[{SPACELESS}\u3000-\u303f\uff01-\uff0f\uff1a-\uff1f]")  # with their punctuation


def begins_spaceless(text: str) -> bool:
    """Return whether the first character is of such a script.

    Example:
        >>> begins_spaceless("猫 cat"), begins_spaceless("cat 猫")
        (True, False)
    """
    return _FIRST.match(text) is not None


def stands_alone(character: str) -> bool:
    """Return whether a character is of such a script, or punctuation of full width.

    Example:
        >>> stands_alone("猫"), stands_alone("。"), stands_alone("c")
        (True, True, False)
    """
    return _ALONE.match(character) is not None


class _Folding(dict[int, str | None]):
    """What `folded` makes of each character, filled when it is met: nothing of spaces, punctuation and controls."""

    def __missing__(self, code: int) -> str | None:
        kept = unicodedata.category(chr(code))[0] not in "PZC"
        self[code] = chr(code) if kept else None
        return self[code]


_FOLDING = _Folding({0x131: "i"})


def folded(text: str) -> str:
    """Return the key under which texts count as the same: without case, width, spaces, punctuation and controls.

    Characters that are equal under NFKC are one. The four letters i of Turkish are one too, since their case depends on
    the language. A text of punctuation alone stays what it is, without spaces.

    Example:
        >>> folded("Ｄon’t  STOP!"), folded("don't stop"), folded("…!")
        ('dontstop', 'dontstop', '...!')
    """
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # Case-folding writes the Turkish capital İ as i and a dot above it.
    kept = re.sub("i\u0307+", "i", plain.translate(_FOLDING))
    return unicodedata.normalize("NFKC", kept) or "".join(plain.split())
