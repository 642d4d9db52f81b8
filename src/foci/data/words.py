"""Words and sentences of texts in any script."""

from __future__ import annotations

import re
from functools import cache

from foci.errors import check_positive
from foci.scripts import IGNORABLE, grapheme_pattern, letter_run, sentence_texts


def sentences_of(text: str, max_words: int | None = None) -> list[list[str]]:
    """Return a document as sentences of words, in any script; a sentence of more than ``max_words`` is cut into pieces.

    Words are letters, digits and marks together, and every other sign alone; where a script puts no spaces between
    words (Chinese, Japanese, Thai, …), each character is a word.

    Example:
        >>> sentences_of("Dr. No isn't bad. 真好！再看一次。")
        [['Dr', '.', 'No', "isn't", 'bad', '.'], ['真', '好', '！'], ['再', '看', '一', '次', '。']]
    """
    pattern = word_pattern()
    sentences = [pattern.findall(piece) for piece in sentence_texts(text)]
    if max_words is not None:
        check_positive("sentences_of", max_words=max_words)
        sentences = [
            words[start : start + max_words] for words in sentences for start in range(0, len(words), max_words)
        ]
    return [words for words in sentences if words]


@cache
def word_pattern() -> re.Pattern[str]:
    """Return a pattern that finds the words of a text; see `sentences_of`."""
    run = letter_run()
    sign = rf"(?![\s{IGNORABLE}])(?:{grapheme_pattern().pattern})"
    # Hebrew writes abbreviations with a quote inside.
    return re.compile(
        rf"{run}(?:['’׳]{run}|[\"״](?=[א-ת])(?<=[א-ת].){run}|(?<=\d)[.,٫٬]\d+)*|\.{{2,}}|{sign}", re.DOTALL
    )


def words_of(text: str) -> list[str]:
    """Return a sentence as words; in scripts without spaces each character is one.

    Example:
        >>> words_of("It isn't red."), words_of("不红。")
        (['It', "isn't", 'red', '.'], ['不', '红', '。'])
    """
    return word_pattern().findall(text)
