"""Labels as they are shown: how many columns a text takes, and how it is cut and made visible.

A terminal gives Chinese, Japanese and Korean characters and emoji two columns and combining marks none; wcwidth has
the tables of Unicode.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from foci.errors import MissingPackageError
from foci.scripts import graphemes

_NON_JOINER, _JOINER = "\u200c", "\u200d"
_TONES = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)
_ORDERS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the order of the text around them."""
_INVISIBLE = _ORDERS | frozenset("\u00ad\u180e\u200b\u2060\u2061\u2062\u2063\u2064\ufeff")
"""Characters that are not drawn at all."""
_SIGNS = {"\n": "↵", "\u2028": "↵", "\u2029": "↵", "\t": "⇥"}


def width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return sum(columns for _, columns in clusters(text))


def widest(labels: Iterable[str]) -> int:
    """The width of the widest label."""
    return max(map(width, labels), default=0)


def clusters(text: str) -> Iterator[tuple[str, int]]:
    """Yield the text in pieces that must not be parted, each with its width."""
    try:
        from wcwidth import wcswidth
    except ImportError as error:
        raise MissingPackageError("texts need wcwidth. Install it with: pip install 'foci[viz]'") from error
    for piece in graphemes(text):
        half_a_flag = len(piece) == 1 and ord(piece) in _FLAG_LETTERS
        yield piece, 1 if half_a_flag else max(wcswidth(piece), 0)


def shown(label: str) -> str:
    """Return the label with a mark for everything that is not seen.

    An empty label is ∅, a blank that stands alone ␣, the end of a line ↵, a tab ⇥, another control ^[, and a character
    that is not drawn (zero-width, or one that turns the text around) its number: ⟨U+200B⟩. A joiner within a word stays
    as it is, since it joins letters and emoji; a mark without a letter is drawn on a circle.
    """
    if not label:
        return "∅"
    if label.isspace():
        return "".join("␣" if unicodedata.category(blank) == "Zs" else _visible(blank) for blank in label)
    ends = (0, len(label) - 1)
    text = "".join(
        _number(character) if character in (_NON_JOINER, _JOINER) and place in ends else _visible(character)
        for place, character in enumerate(label)
    )
    return f"◌{text}" if unicodedata.category(label[0]) in ("Mn", "Me") else text


def untoned(label: str) -> str:
    """Emoji without their tones of skin, which a font that is drawn in black shows as patches of their own."""
    return label[:1] + "".join(character for character in label[1:] if ord(character) not in _TONES)


def cut(label: str, columns: int) -> str:
    """The label if it fits, or else its beginning and "…"; no character is parted from its marks."""
    if width(label) <= columns:
        return label
    kept, used = "", 1
    for piece, size in clusters(label):
        if used + size > columns:
            break
        kept, used = kept + piece, used + size
    return kept + "…" if columns > 0 else ""


def _number(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


def _visible(character: str) -> str:
    if character in _INVISIBLE:
        return _number(character)
    number, category = ord(character), unicodedata.category(character)
    if character in _SIGNS:
        return _SIGNS[character]
    if number < 0x20 or number == 0x7F:
        return "^" + chr(number ^ 0x40)
    return "\ufffd" if category in ("Cc", "Cs", "Cn") else character
