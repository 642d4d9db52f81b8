"""Characters as people count them: extended grapheme clusters.

Paper: Unicode Standard Annex #29, Unicode Text Segmentation (Unicode 18), table 1c and rules GB3 to GB13
Differs: Burmese and Tai vowels that the annex leaves apart (ာ း) stay with their letter; any two symbols are one
    cluster around a joiner, not only emoji; any letter after a virama that forms conjuncts joins, not only consonants.
"""

from __future__ import annotations

import re
from functools import cache

from foci.scripts.characters import marks, of_category

_CONTROLS = (
    "\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"
    "\U000e0000-\U000e001f"
)
_PREPENDED = "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd\U000111c2\U000111c3"
"""Signs of Arabic and others that stand before what they enclose."""
_CONJUNCT = "\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d\u1039\u17d2\u1a60\u1b44\u1bab\ua9c0\uaaf6"
"""Viramas that make one sign of the consonants around them."""
_CONJOINING = "\u0900-\u0d7f\u1000-\u109f\u1780-\u17b3\u1a20-\u1bbf\ua980-\uaaff"
"""The blocks of their letters."""
_FLAGS = "\U0001f1e6-\U0001f1ff"


@cache
def grapheme_pattern() -> re.Pattern[str]:
    """Return a pattern that matches one character with all that belongs to it."""
    mark, symbol = f"[{marks()}]", rf"(?![{_FLAGS}\U0001f3fb-\U0001f3ff])[{of_category('S')}\u203c\u2049\u3030\u303d]"
    lead, vowel, trail = "[\u1100-\u115f\ua960-\ua97c]", "[\u1160-\u11a7\ud7b0-\ud7c6]", "[\u11a8-\u11ff\ud7cb-\ud7fb]"
    open_syllables = "".join(map(chr, range(0xAC00, 0xD7A4, 28)))
    hangul = f"{lead}*(?:{vowel}+|[{open_syllables}]{vowel}*|[\uac00-\ud7a3]){trail}*|{lead}+|{trail}+"
    letter = f"(?=[{_CONJOINING}])" + r"[^\W\d_]"
    bases = (
        hangul,
        f"[{_FLAGS}]{{2}}",
        f"{symbol}(?:{mark}*\u200d{symbol})*",
        f"{letter}(?:{mark}*[{_CONJUNCT}]{mark}*{letter})*",
        f"[^{_CONTROLS}]",
    )
    return re.compile(rf"\r\n|[{_PREPENDED}]*(?:{'|'.join(bases)}){mark}*|.", re.DOTALL)


def graphemes(text: str) -> list[str]:
    """Return the characters of a text, each with its marks; together they are the text.

    Example:
        >>> graphemes("ที่นี่"), graphemes("🇩🇪👍🏽é"), graphemes("क्षि")
        (['ที่', 'นี่'], ['🇩🇪', '👍🏽', 'é'], ['क्षि'])
    """
    return grapheme_pattern().findall(text)
