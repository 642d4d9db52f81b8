"""Forms of text: one for each way to write the same characters, and a key for texts that differ in form alone."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

NormalForm = Literal["nfc", "nfkc", "none"]
"""Unicode's normal form C (é is one character), KC (ﬁ is fi, ５ is 5), or the text as it is."""


def normalized(text: str, form: NormalForm = "nfc") -> str:
    """Return a text in a normal form.

    Example:
        >>> [len(normalized("e\\u0301ﬁ", form)) for form in ("nfc", "nfkc", "none")]
        [2, 3, 3]
    """
    if form == "none" or text.isascii():
        return text
    return unicodedata.normalize("NFC" if form == "nfc" else "NFKC", text)


def lowered(text: str) -> str:
    """Return a text in lower case, by the rules of all languages but Turkish and Azerbaijani.

    There the capital of i is İ and I is the capital of ı; without knowing the language, I becomes i. İ becomes i as
    well, where Python's rule would write i with a second dot.

    Example:
        >>> lowered("İZMİR IRMAK"), len("İ".lower())
        ('izmir irmak', 2)
    """
    return text.replace("İ", "i").lower() if "İ" in text else text.lower()


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
