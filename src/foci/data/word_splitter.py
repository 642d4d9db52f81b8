"""How text becomes words, by one rule for training, predictions and metrics (the setting ``data.words``).

    unicode          letters, digits and marks together, every other sign alone; in scripts without spaces by characters
    treebank         as corpora of words are split: ``do n't``, ``'s``; ``U.S.``, ``2-0``, dates, addresses of the web
                     and compounds with hyphens are whole
    ud               the same, with compounds and ranges split at their hyphens, as Universal Dependencies has English
    spaces           what stands between spaces
    characters       each character with its marks
    module:function  a function of the user's that returns the words of a text, such as ``jieba:lcut``

A function is code, and the settings of a run are data: a run that someone else trained does not choose what is
executed. See `trust`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from foci.errors import ConfigError, check_positive
from foci.scripts import IGNORABLE, SPACELESS, grapheme_pattern, letter_run, marks, sentence_texts

Offsets = tuple[int, int]
"""Where a word begins and ends in its text, in characters; the end is not in it."""
VARIABLE = "FOCI_WORDS"
"""The environment variable with the functions that runs may name, separated by commas."""

_SEGMENTERS = ("jieba:lcut", "jieba:cut", "pythainlp:word_tokenize", "pythainlp.tokenize:word_tokenize")
"""Functions of packages that do nothing but split text."""
_trusted = {*_SEGMENTERS}

_ABBREVIATIONS = (
    *("Mr", "Mrs", "Ms", "Dr", "Prof", "Sr", "Jr", "St", "Gen", "Sen", "Rep", "Gov", "Lt", "Col", "Capt", "Sgt"),
    *("Inc", "Corp", "Co", "Ltd", "vs", "No", "Jan", "Feb", "Mar", "Apr", "Jun", "Jul", "Aug", "Sep", "Sept", "Oct"),
    *("Nov", "Dec"),
)
"""Words that keep their full stop where more text follows, as treebanks of English have it."""


@dataclass(frozen=True)
class WordSplitter:
    """Splits texts into words by one rule.

    Args:
        rule: one of the names above, or ``module:function``.

    Example:
        >>> WordSplitter("unicode").words("It isn't 2-0."), WordSplitter("treebank").words("It isn't 2-0.")
        (['It', "isn't", '2', '-', '0', '.'], ['It', 'is', "n't", '2-0', '.'])
        >>> WordSplitter("spaces").words("北京 大学"), WordSplitter("characters").words("2024 年")
        (['北京', '大学'], ['2', '0', '2', '4', '年'])
    """

    rule: str

    def offsets(self, text: str) -> tuple[Offsets, ...]:
        """Return where the words of a text are."""
        if self._function is None:
            return tuple(found.span() for found in _pattern(self.rule).finditer(text))
        return align(text, self.words(text), f"data.words = {self.rule}")

    def words(self, text: str) -> list[str]:
        """Return the words of a text."""
        if self._function is None:
            return [found.group() for found in _pattern(self.rule).finditer(text)]
        words = list(self._function(text))
        if not all(isinstance(word, str) for word in words):
            raise ConfigError(
                f"data.words: {self.rule} returned other things than texts, expected the words of a text."
            )
        return [word for word in words if word.strip()]

    def sentences(self, text: str, max_words: int | None = None) -> list[list[str]]:
        """Return a document as sentences of words; a sentence of more than ``max_words`` is cut into pieces.

        Example:
            >>> WordSplitter("unicode").sentences("Dr. No isn't bad. 真好！再看一次。")
            [['Dr', '.', 'No', "isn't", 'bad', '.'], ['真', '好', '！'], ['再', '看', '一', '次', '。']]
        """
        sentences = [self.words(piece) for piece in sentence_texts(text)]
        if max_words is not None:
            check_positive("WordSplitter.sentences", max_words=max_words)
            sentences = [
                words[start : start + max_words] for words in sentences for start in range(0, len(words), max_words)
            ]
        return [words for words in sentences if words]

    def note(self, text: str) -> list[str]:
        """Return what is to be said of a text that does not come as the rule expects: that it is not segmented."""
        runs = _spaceless(text)
        if self.rule != "spaces" or sum(runs) < _TELLING or sum(runs) <= 2 * _LONGEST_WORD * len(runs):
            return []
        return [
            "the run was trained on words with spaces between them (data.words = spaces), but this text has none. "
            "Segment it as the training data is"
        ]

    @cached_property
    def _function(self) -> Callable[[str], Sequence[str]] | None:
        return _load(self.rule) if ":" in self.rule else None


def align(text: str, words: Iterable[str], owner: str) -> tuple[Offsets, ...]:
    """Return where words stand in their text, in order.

    Example:
        >>> align("北京大学", ["北京", "大学"], "data.words")
        ((0, 2), (2, 4))
    """
    found, end = [], 0
    for word in words:
        start = text.find(word, end)
        if start < 0:
            raise ConfigError(
                f"{owner}: the word {word!r} does not stand in the text in this order, expected its words."
            )
        end = start + len(word)
        found.append((start, end))
    return tuple(found)


# ---- rules


@cache
def _pattern(rule: str) -> re.Pattern[str]:
    if rule == "spaces":  # a no-break space holds a word together
        return re.compile("\\S+(?:[\u00a0\u2007\u202f]\\S+)*")
    if rule == "characters":
        return re.compile(rf"(?![\s{IGNORABLE}])(?:{grapheme_pattern().pattern})", re.DOTALL)
    if rule in ("treebank", "ud"):
        return _treebank(hyphens=rule == "treebank")
    return _unicode()


@cache
def _unicode() -> re.Pattern[str]:
    """Return the pattern of letters, digits and marks together, and of every other sign alone."""
    run = letter_run()
    sign = rf"(?![\s{IGNORABLE}])(?:{grapheme_pattern().pattern})"
    # Hebrew writes abbreviations with a quote inside.
    return re.compile(
        rf"{run}(?:['’׳]{run}|[\"״](?=[א-ת])(?<=[א-ת].){run}|(?<=\d)[.,٫٬]\d+)*|\.{{2,}}|{sign}", re.DOTALL
    )


def _treebank(hyphens: bool) -> re.Pattern[str]:
    """Return the pattern of words as treebanks have them; what it does not know is split as `_unicode` does."""
    letter, mark = rf"[^\W_{SPACELESS}]", rf"[{marks()}]"
    parts = (
        r"(?:[Hh][Tt][Tt][Pp][Ss]?://|[Ww]{3}\.)[^\s<>\"]*[^\s<>\".,;:!?)\]]",
        r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
        r"[@#][^\W_][\w]*|&[A-Za-z]+;",
        r"[:;=8][-o']?[()DPpd\]\[/|]+(?!\w)",  # faces
        rf"(?:[^\W\d_{SPACELESS}]\.){{2,}}|\b(?:{'|'.join(_ABBREVIATIONS)})\.(?=\s+\S)",
        r"\b[A-HJ-Z]\.(?=\s+[A-Z])",  # initials
        r"\d{3}-\d{3,4}-\d{4}(?![-\d])",  # telephones
        rf"\d+(?:[{'-' * hyphens}./:,]\d+)+(?:(?:st|[nr]d|th|s)?(?!{letter})|(?=[AaPp]\.?[Mm]\b))",
        rf"(?i:{letter}+?(?=n['’]t\b)|n['’]t\b|['’](?:s|m|d|ll|re|ve)\b)",
        # A word with marks is left to the general pattern.
        rf"(?>{letter}+{f'(?:[-.&]{letter}+)*' if hyphens else ''})(?!{mark})",
        r"[.?!]{2,}|(?P<sign>[^\w\s]|_)(?P=sign)+",
    )
    return re.compile(f"{'|'.join(parts)}|{_unicode().pattern}", re.DOTALL)


# ---- text that is segmented already

_SPACELESS = re.compile(f"[{SPACELESS}]")
_SAMPLE = 2000
"""Texts that a rule is chosen by."""
_LONGEST_WORD = 4.5
"""Mean number of characters of a word in segmented text: 1.6 in Chinese, about 4 in Thai."""
_TELLING = 8
"""Characters of a text from which on it shows whether it is segmented."""


def rule_of_texts(texts: Iterable[str]) -> str:
    """Return the rule for texts: ``spaces`` where a script without spaces comes with spaces between words, or unicode.

    Example:
        >>> rule_of_texts(["我 喜欢 北京 的 秋天 。", "a"]), rule_of_texts(["我喜欢北京的秋天。", "我爱 你"])
        ('spaces', 'unicode')
    """
    telling = segmented = 0
    for text in islice(texts, _SAMPLE):
        runs = _spaceless(text)
        if sum(runs) >= _TELLING:
            telling += 1
            segmented += sum(runs) <= _LONGEST_WORD * len(runs) and sum(runs) > len(runs)
    return "spaces" if segmented > 0.9 * telling else "unicode"


def _spaceless(text: str) -> list[int]:
    """How many characters of scripts without spaces each piece between spaces has, of those that have any."""
    return [count for piece in text.split() if (count := len(_SPACELESS.findall(piece)))]


# ---- functions


def trust(rule: str) -> None:
    """Let runs of this process use a function that the user has named.

    Functions that are known to do nothing but split text are always trusted; others where the user names them in the
    settings of a training, or in the environment variable FOCI_WORDS.
    """
    _trusted.add(rule)


@cache
def _load(rule: str) -> Callable[[str], Sequence[str]]:
    if rule not in _trusted and rule not in os.environ.get(VARIABLE, "").split(","):
        raise ConfigError(
            f"data.words is {rule}, which the run names, but not you: a run is data and does not choose which code is "
            f"executed. If you know the function, allow it with the environment variable {VARIABLE}={rule}."
        )
    module, _, name = rule.partition(":")
    try:
        spec = find_spec(module)
        folder = Path(spec.origin).parent if spec is not None and spec.origin else None
        if folder is not None and (folder / "config.json").exists() and (folder / "checkpoints").exists():
            raise ConfigError(f"data.words is {rule}, whose module lies in the folder of a run ({folder}). Move it.")
        function: Callable[[str], Sequence[str]] = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"data.words is {rule}, which cannot be imported ({error}). Install its package, or name its folder in "
            "PYTHONPATH; expected module:function, such as jieba:lcut."
        ) from error
    return function
