"""Words and sentences of texts in any script."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import groupby

from foci.errors import check_positive
from foci.scripts import SPACELESS

_CLOSING = "\"'”’»›)\\]}」』）】》〉｣"


_ABBREVIATIONS = frozenset(("mr", "mrs", "ms", "dr", "prof", "sr", "jr", "st", "vs", "e.g", "i.e", "cf", "fig"))


_ENDS = re.compile(  # full stops that need no space after them, those that do, and empty lines
    rf"[。！？｡]+[{_CLOSING}]*|[.!?…؟۔।॥։።။។]+[{_CLOSING}]*(?=\s|$)|\n[^\S\n]*\n\s*"
)


def sentences_of(text: str, max_words: int | None = None) -> list[list[str]]:
    """Return a document as sentences of words, in any script; a sentence of more than ``max_words`` is cut into pieces.

    Words are letters, digits and marks together, and every other sign alone; where a script puts no spaces between
    words (Chinese, Japanese, Thai, …), each character is a word.

    Example:
        >>> sentences_of("Dr. No isn't bad. 真好！再看一次。")
        [['Dr', '.', 'No', "isn't", 'bad', '.'], ['真', '好', '！'], ['再', '看', '一', '次', '。']]
    """
    pattern = word_pattern()
    sentences = [pattern.findall(piece) for piece in _pieces(text)]
    if max_words is not None:
        check_positive("sentences_of", max_words=max_words)
        sentences = [
            words[start : start + max_words] for words in sentences for start in range(0, len(words), max_words)
        ]
    return [words for words in sentences if words]


def _pieces(text: str) -> Iterator[str]:
    start = 0
    for end in _ENDS.finditer(text):
        if _is_end(text, end):
            yield text[start : end.end()]
            start = end.end()
    yield text[start:]


def _is_end(text: str, end: re.Match[str]) -> bool:
    """Return whether a sentence ends here: not after an initial or an abbreviation, nor before a small letter."""
    after = text[end.end() : end.end() + 40].lstrip()[:1]
    if end.group() != ".":
        return not (after.islower() and end.group()[-1] in _CLOSING)
    before = text[max(0, end.start() - 20) : end.start()].split()
    last = before[-1].lstrip("(\"'“‘") if before and not text[end.start() - 1].isspace() else ""
    initial = len(last) == 1 and last.isupper() and last != "I"
    return not (after.islower() or initial or last.lower() in _ABBREVIATIONS)


@cache
def word_pattern() -> re.Pattern[str]:
    """Return a pattern that finds the words of a text; see `sentences_of`."""
    # Python's \w leaves out the marks that Hindi, Arabic and others write their vowels with; and joiners belong inside.
    codes = [code for code in range(0x300, 0x1F000) if unicodedata.category(chr(code)).startswith("M")]
    runs = [list(run) for _, run in groupby(enumerate(codes), key=lambda placed: placed[1] - placed[0])]
    marks = "".join(f"{chr(run[0][1])}-{chr(run[-1][1])}" for run in runs) + "\u200c\u200d\ufe0f"
    letter, mark = rf"[^\W_{SPACELESS}]", f"[{marks}]"
    return re.compile(
        rf"{letter}+(?:{mark}+{letter}*)*(?:['’]{letter}+|(?<=\d)[.,]\d+)*|[{SPACELESS}]{mark}*"
        rf"|\.{{2,}}|(?:[^\w\s]|_){mark}*"
    )


def words_of(text: str) -> list[str]:
    """Return a sentence as words; in scripts without spaces each character is one.

    Example:
        >>> words_of("It isn't red."), words_of("不红。")
        (['It', "isn't", 'red', '.'], ['不', '红', '。'])
    """
    return word_pattern().findall(text)
