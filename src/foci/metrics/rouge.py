"""ROUGE: how many n-grams, and how long a common subsequence, a summary shares with a reference; in any script.

    ROUGE-n  P = shared n-grams / n-grams of the summary,  R = shared / n-grams of the reference,  F = 2 P R / (P + R)
    ROUGE-L  the same with the length of the longest common subsequence of words

Words are runs of letters and digits, without case; where a script puts no spaces between words (Chinese, Japanese,
Thai, …), each character is a word, unless a segmenter is given. On text in a-z the metrics are those of Google's
rouge-score package, which counts no other letters.

Paper: ROUGE: A Package for Automatic Evaluation of Summaries (Lin, 2004), sections 2 and 3
Names: ROUGE-N = rouge("rougeN"), LCS = longest_common
Complexity: O(words) for n-grams, O(words of both, multiplied) for ROUGE-L
Differs: words outside of a-z count; ROUGE-L is of the whole text, not of its sentences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from statistics import fmean
from typing import Any, NamedTuple

from foci.errors import DataError, MissingPackageError
from foci.scripts import SPACELESS, grapheme_pattern, letter_run, lowered, normalized

KINDS = ("rouge1", "rouge2", "rougeL")
Words = Callable[[str], Sequence[str]]
"""Splits a text into words."""

_STEMMED = 4
"""Words of fewer characters are not stemmed, as in rouge-score."""


class Rouge(NamedTuple):
    """Precision, recall and their harmonic mean, from 0 to 1."""

    precision: float
    recall: float
    f: float

    @classmethod
    def from_counts(cls, shared: int, produced: int, reference: int) -> Rouge:
        """Return the metrics of these counts.

        Example:
            >>> Rouge.from_counts(1, 2, 4)
            Rouge(precision=0.5, recall=0.25, f=0.3333333333333333)
        """
        precision, recall = shared / max(produced, 1), shared / max(reference, 1)
        return cls(precision, recall, 2 * precision * recall / (precision + recall) if shared else 0.0)


class References(NamedTuple):
    """The metrics against several references: those of the best one (by F of ROUGE-1), and the mean over all."""

    best: dict[str, Rouge]
    mean: dict[str, Rouge]


def compared_words(text: str, *, stem: bool = False) -> list[str]:
    """Return the words of a text in lower case, in any script.

    Args:
        text: any text.
        stem: cut the endings of English words by Porter's rules, as rouge-score does; needs nltk.

    Example:
        >>> compared_words("The cat's 2 mats: 猫坐")
        ['the', 'cat', 's', '2', 'mats', '猫', '坐']
    """
    found = _pattern().findall(lowered(normalized(text)))
    return [_stemmed(word) for word in found] if stem else found


def rouge(produced: Sequence[str], reference: Sequence[str]) -> dict[str, Rouge]:
    """Return ROUGE-1, ROUGE-2 and ROUGE-L of two lists of words.

    Example:
        >>> round(rouge(["a", "cat", "sat"], ["the", "cat", "sat"])["rouge2"].f, 2)
        0.5
    """
    found = {}
    for size in (1, 2):
        one, other = ngrams(produced, size), ngrams(reference, size)
        found[f"rouge{size}"] = Rouge.from_counts((one & other).total(), one.total(), other.total())
    found["rougeL"] = Rouge.from_counts(longest_common(produced, reference), len(produced), len(reference))
    return found


def against_all(produced: Sequence[str], references: Sequence[Sequence[str]]) -> References:
    """Return the metrics against several references.

    Example:
        >>> found = against_all(["a", "b"], [["a", "b"], ["c"]])
        >>> found.best["rouge1"].f, found.mean["rouge1"].f
        (1.0, 0.5)
    """
    if not references:
        raise DataError("against_all: there are no references, expected at least one.")
    each = [rouge(produced, reference) for reference in references]
    return References(max(each, key=lambda one: one["rouge1"].f), mean_of(each))


def mean_of(each: Iterable[dict[str, Rouge]]) -> dict[str, Rouge]:
    """Return the mean of each metric."""
    each = list(each)
    return {kind: Rouge(*(fmean(values) for values in zip(*(one[kind] for one in each)))) for kind in KINDS}


def ngrams(words: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    """Return how often each n-gram of ``size`` words occurs.

    Example:
        >>> ngrams(["a", "b", "a", "b"], 2)
        Counter({('a', 'b'): 2, ('b', 'a'): 1})
    """
    return Counter(tuple(words[start : start + size]) for start in range(len(words) - size + 1))


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    Example:
        >>> longest_common("abcde", "xbydz")
        2
    """
    best = [0] * (len(other) + 1)
    for word in one:
        before = 0  # the best of the shorter prefixes of both
        for place, target in enumerate(other, start=1):
            above = best[place]
            best[place] = before + 1 if word == target else max(above, best[place - 1])
            before = above
    return best[-1]


def novel_share(produced: Sequence[str], source: Sequence[str], size: int) -> float | None:
    """Return the share of the summary's n-grams that the source does not have; None for a summary without any.

    Example:
        >>> novel_share(["a", "new", "cat"], ["the", "new", "cat"], 2)
        0.5
    """
    found, known = ngrams(produced, size), ngrams(source, size)
    return sum(count for one, count in found.items() if one not in known) / found.total() if found else None


def oracle_extract(sentences: Sequence[Sequence[str]], references: Sequence[Sequence[str]], most: int) -> list[int]:
    """Return the numbers of at most ``most`` sentences that are together nearest to the references.

    Greedy: the sentence that raises F of ROUGE-1 plus F of ROUGE-2 against the best reference most is added, until
    none does; so it is a strong baseline that knows the answer, and not exactly the best possible extract.

    Args:
        sentences: the words of each sentence of the source.
        references: the words of each reference.
        most: the largest number of sentences.

    Example:
        >>> oracle_extract([["a", "b"], ["c", "d"], ["e"]], [["c", "d"]], 2)
        [1]
    """
    chosen: list[int] = []
    best = 0.0
    while len(chosen) < most:
        scored = []
        for number in range(len(sentences)):
            if number not in chosen:
                words = [word for place in sorted([*chosen, number]) for word in sentences[place]]
                scored.append((max(_both(words, reference) for reference in references), -number))
        if not scored or max(scored)[0] <= best:
            break
        best, number = max(scored)
        chosen.append(-number)
    return sorted(chosen)


def _both(words: Sequence[str], reference: Sequence[str]) -> float:
    total = 0.0
    for size in (1, 2):
        one, other = ngrams(words, size), ngrams(reference, size)
        total += Rouge.from_counts((one & other).total(), one.total(), other.total()).f
    return total


@lru_cache(maxsize=1)
def _pattern() -> re.Pattern[str]:
    return re.compile(rf"{letter_run()}|(?=[{SPACELESS}])(?=\w)(?:{grapheme_pattern().pattern})")


@lru_cache(maxsize=1 << 16)
def _stemmed(word: str) -> str:
    if len(word) < _STEMMED or not word.isascii():
        return word
    stemmed: str = _stemmer().stem(word)
    return stemmed


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    try:
        from nltk.stem import porter  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingPackageError("stemming needs nltk. Install it with: pip install nltk") from error
    return porter.PorterStemmer()
