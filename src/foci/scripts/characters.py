"""Which characters belong to scripts without spaces, and which belong to the character before them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import groupby

HAN = "\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese characters with all extensions, as ranges for the inside of a regular expression's brackets."""
KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f"
"""Hiragana and katakana, of half width too."""
HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7ff"
SPACELESS = (
    HAN + KANA + "\u3100-\u312f\u31a0-\u31bf"  # Bopomofo
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Tibetan, Burmese, Khmer
    "\u1950-\u19ff\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf\U000116d0-\U000116e3"  # Tai scripts, the rest of Burmese
    "\u1b00-\u1b7f\ua980-\ua9df\ua000-\ua4cf\U00017000-\U00018d7f\U0001b170-\U0001b2ff"  # Bali, Java, Yi, Tangut, Nüshu
)
"""The scripts that put no spaces between words, as ranges for a regular expression's brackets."""
IGNORABLE = (
    "\u00ad\u034f\u061c\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff"
)
"""Characters that are not drawn: soft hyphens, joiners, directions, variants, spaces of no width; as ranges too."""

ATTACHED = "\u0e33\u0eb3\u200c\u200d\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\U000e0100-\U000e01ef"
"""What belongs to the character before it without being a mark of Unicode: the vowel am of Thai and Lao, joiners, the
voicing of half-width kana, tones of skin, tags and variants; as ranges."""

_FIRST = re.compile(rf"[^\w{SPACELESS}]*[{SPACELESS}]")
_LAST = re.compile(rf"[{SPACELESS}][^\w{SPACELESS}]*$")
_WIDE_SIGNS = "\u3001-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\ufe30-\ufe4f"
_WIDE = re.compile(f"[{_WIDE_SIGNS}]")
_SPACES = re.compile(rf"(?<=[{SPACELESS}{_WIDE_SIGNS}])\s+|\s+(?=[{SPACELESS}{_WIDE_SIGNS}])")
_SIGNS = re.compile(r"[^\w\s]+")
_ALONE = re.compile(f"[{SPACELESS}]")


@cache
def marks() -> str:
    """Return the characters that belong to the one before them, as ranges for a regular expression's brackets.

    They are Unicode's marks, with which Hindi, Thai, Hebrew and others write vowels, and `ATTACHED`.
    """
    return of_category("M") + ATTACHED


def is_mark(character: str) -> bool:
    """Return whether a character belongs to the one before it; see `marks`.

    Example:
        >>> is_mark("\\u0301"), is_mark("e")
        (True, False)
    """
    return _mark_pattern().match(character) is not None


@cache
def _mark_pattern() -> re.Pattern[str]:
    return re.compile(f"[{marks()}]")


@cache
def of_category(initial: str) -> str:
    """Return all characters up to U+1FBFF of the categories with this first letter, as ranges."""
    codes = [code for code in range(0xA0, 0x1FC00) if unicodedata.category(chr(code))[0] == initial]
    runs = [list(run) for _, run in groupby(enumerate(codes), key=lambda placed: placed[1] - placed[0])]
    return "".join(f"{chr(run[0][1])}-{chr(run[-1][1])}" for run in runs)


@cache
def letter_run() -> str:
    """Return the pattern of letters and digits that follow each other, with their marks, in scripts with spaces.

    Soft hyphens and signs of direction may stand inside; a space of no width separates.
    """
    letter, mark = rf"[^\W_{SPACELESS}]", f"[{marks()}]"  # Python's \w leaves out marks
    return rf"{letter}+(?:{mark}+{letter}*|(?:(?!\u200b)[{IGNORABLE}])+{letter}+)*"


def stands_alone(character: str) -> bool:
    """Return whether a character is of a script without spaces, or punctuation of full width.

    Example:
        >>> stands_alone("猫"), stands_alone("。"), stands_alone("c")
        (True, True, False)
    """
    return bool(_ALONE.match(character) or _WIDE.match(character))


def begins_spaceless(text: str) -> bool:
    """Return whether no space stands before this text: its script has none, or it begins with full-width punctuation.

    Quotes and brackets that several scripts share follow the first letter after them.

    Example:
        >>> [begins_spaceless(text) for text in ("猫 cat", "《cat》", "“猫”", "“cat”", "cat 猫")]
        [True, True, True, False, False]
    """
    return bool(_WIDE.match(text) or _FIRST.match(text))


def ends_spaceless(text: str) -> bool:
    """Return whether no space stands after this text; see `begins_spaceless`.

    Example:
        >>> [ends_spaceless(text) for text in ("cat 猫", "《cat》", "“猫”", "“cat”")]
        [True, True, True, False]
    """
    return bool(_WIDE.match(text[-1:]) or _LAST.search(text))


def join_texts(texts: Iterable[str]) -> str:
    """Return words or longer texts with spaces between them, except where a script has none.

    Punctuation of full width has its space in itself, also beside letters of other scripts.

    Example:
        >>> join_texts(["yes", "no"]), join_texts(["他", "说", "“", "好", "”", "", "（", "OK", "）", "。"])
        ('yes no', '他说“好”（OK）。')
    """
    joined = ""
    for text in filter(None, texts):
        wide = _WIDE.match(joined[-1:]) or _WIDE.match(text)
        spaceless = ends_spaceless(joined[-40:]) and (begins_spaceless(text) or _SIGNS.fullmatch(text))
        joined += text if wide or spaceless or not joined else f" {text}"
    return joined


def without_spaces(text: str) -> str:
    """Return a text without spaces next to scripts that have none, which metrics should not count.

    Example:
        >>> without_spaces("今 天 very good ！")
        '今天very good！'
    """
    return _SPACES.sub("", text)


_SCRIPTS = tuple(
    (name, re.compile(f"[{ranges}]")) for name, ranges in (("kana", KANA), ("hangul", HANGUL), ("han", HAN))
)


def dominant_script(texts: Iterable[str]) -> str:
    """Return the script of texts as far as metrics differ: kana, hangul, han, another ``spaceless`` one, or ``spaced``.

    Japanese is known by its kana, a tenth of the letters; Chinese in other text counts from three tenths.

    Example:
        >>> [dominant_script([text]) for text in ("ein Haus", "你好", "日本語です", "안녕", "မင်္ဂလာပါ")]
        ['spaced', 'han', 'kana', 'hangul', 'spaceless']
    """
    counts = Counter(character for text in texts for character in text if character.isalpha())
    total, found = counts.total(), Counter[str]()
    for character, count in counts.items():
        names = [name for name, pattern in _SCRIPTS if pattern.match(character)]
        found[names[0] if names else "spaceless" if _ALONE.match(character) else "spaced"] += count
    for name, least in (("kana", 0.1), ("hangul", 0.1), ("spaceless", 0.1), ("han", 0.3)):
        if found[name] > least * total:
            return name
    return "spaced"
