"""Cloze questions as batches: ids of words, and which candidate begins at each of them."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from foci.data.batching import Indices, Sequences
from foci.data.vocabulary import Vocabulary
from foci.data.word_splitter import WordSplitter
from foci.scripts import lowered
from foci.tasks.cloze.config import BLANK
from foci.tasks.cloze.reader import ClozeQuestion, candidates_of

_POSSESSIVE = re.compile("(?<=.)(['’][sS])$")
"""The ending of "Saul's": without it the word is the candidate "Saul"."""


class TokenizedQuestion(NamedTuple):
    """A question in words. ``places`` have the number of the candidate that begins at each word, or -1."""

    sentences: list[list[str]]
    question: list[str]
    candidates: list[str]
    places: list[int]
    question_places: list[int]
    answer: int
    """The number of the answer, -1 if it is no candidate or not known."""
    left_out: int
    """Words at the beginning of the document that are not read."""

    @property
    def words(self) -> list[str]:
        """The words of the document."""
        return [word for sentence in self.sentences for word in sentence]

    @property
    def counts(self) -> list[int]:
        """How often each candidate is in the document."""
        found = Counter(self.places)
        return [found[number] for number in range(len(self.candidates))]

    @property
    def is_answerable(self) -> bool:
        """Whether the answer is in the document."""
        return self.answer >= 0 and self.answer in self.places

    @property
    def most_frequent(self) -> int:
        """The number of the candidate that is most often in the document; of equal ones the first."""
        counts = self.counts
        return max(range(len(counts)), key=counts.__getitem__) if counts else -1


def split_text(text: str, splitter: WordSplitter, blank: str = BLANK) -> list[list[str]]:
    """Return a text as sentences of words, in which the blank is a word of its own, and so is a possessive ending.

    Example:
        >>> split_text("She ate Saul's ___. 好吃！", WordSplitter("unicode"), "___")
        [['She', 'ate', 'Saul', "'s", 'XXXXX', '.'], ['好', '吃', '！']]
    """
    spaced = splitter.rule == "spaces"  # such files have their words apart, and one sentence per line
    ending = " " * spaced
    marked = re.sub(rf"{re.escape(blank)}(['’][sS]\b)?", lambda found: f" {BLANK}{ending}{found[1] or ''} ", text)
    # One object per distinct word: otherwise a corpus would not fit in memory.
    if spaced:
        return [list(map(sys.intern, words)) for words in map(splitter.words, marked.splitlines()) if words]
    sentences = (words for line in marked.splitlines() for words in splitter.sentences(line))
    return [[sys.intern(part) for word in words for part in _POSSESSIVE.split(word) if part] for words in sentences]


def tokenize(
    question: ClozeQuestion, *, splitter: WordSplitter, blank: str = BLANK, lowercase: bool = True, max_words: int
) -> TokenizedQuestion:
    """Return a question in words, with the places of its candidates.

    Args:
        question: the question; its answer may be empty.
        splitter: splits texts into words.
        blank: how the texts write the blank.
        lowercase: whether "The" is "the", also where candidates are found.
        max_words: of a longer document the last words are read.
    """
    sentences = split_text(question.document, splitter, blank)
    left_out = max(sum(map(len, sentences)) - max_words, 0)
    drop = left_out
    while drop:
        cut = min(drop, len(sentences[0]))
        sentences[0] = sentences[0][cut:]
        drop -= cut
        if not sentences[0]:
            sentences.pop(0)
    question_words = [word for words in split_text(question.question, splitter, blank) for word in words]
    keys = {word: lowered(word) if lowercase else word for words in (*sentences, question_words) for word in words}
    document = [keys[word] for words in sentences for word in words]
    if question.candidates:
        names = candidates_of(question.candidates)
    else:
        different = {keys[word]: word for words in reversed(sentences) for word in reversed(words)}
        names = [different[key] for key in dict.fromkeys(document) if different[key] != BLANK and _is_word(key)]
    known: dict[tuple[str, ...], int] = {}
    for number, name in enumerate(names):
        words = [word for sentence in split_text(name, splitter, blank) for word in sentence]
        known.setdefault(tuple(lowered(word) if lowercase else word for word in words), number)
    answer = [word for words in split_text(question.answer, splitter, blank) for word in words]
    return TokenizedQuestion(
        sentences,
        question_words,
        names,
        places_of(document, known),
        places_of([keys[word] for word in question_words], known),
        known.get(tuple(lowered(word) if lowercase else word for word in answer), -1) if answer else -1,
        left_out,
    )


def _is_word(text: str) -> bool:
    return any(letter.isalnum() for letter in text)


def places_of(words: Sequence[str], known: dict[tuple[str, ...], int]) -> list[int]:
    """Return the number of the candidate that begins at each word, or -1; of several the longest one.

    Example:
        >>> places_of(["the", "old", "man", "is", "old"], {("old",): 0, ("old", "man"): 1})
        [-1, 1, -1, -1, 0]
    """
    lengths = sorted({len(name) for name in known if name}, reverse=True)
    found = [-1] * len(words)
    place = 0
    while place < len(words):
        taken = 1
        for length in lengths:
            number = known.get(tuple(words[place : place + length]))
            if number is not None:
                found[place], taken = number, length
                break
        place += taken
    return found


class ClozeBatch(NamedTuple):
    """Questions, padded with 0, places with -1; see `foci.models.cloze_reader.Reader` for all but the last."""

    document: Int[Tensor, "B S"]
    question: Int[Tensor, "B R"]
    places: Int[Tensor, "B S"]
    question_places: Int[Tensor, "B R"]
    blank: Int[Tensor, " B"]
    num_candidates: Int[Tensor, " B"]
    answer: Int[Tensor, " B"]


class ClozeExamples:
    """Questions as ids, to be batched by `foci.data.TokenBatches`.

    Args:
        questions: in words.
        vocabulary: of words.
    """

    def __init__(self, questions: Iterable[TokenizedQuestion], vocabulary: Vocabulary) -> None:
        questions = list(questions)
        most = 2 + max((len(one.candidates) for one in questions), default=0)
        self.document = Sequences((vocabulary.ids(one.words) for one in questions), len(vocabulary))
        self.question = Sequences((vocabulary.ids(one.question) for one in questions), len(vocabulary))
        # Stored from 1 on, so that padding is the 0 of `Sequences`.
        self.places = Sequences(([number + 1 for number in one.places] for one in questions), most)
        self.question_places = Sequences(([number + 1 for number in one.question_places] for one in questions), most)
        blanks = [one.question.index(BLANK) if BLANK in one.question else -1 for one in questions]
        self.blank = np.array(blanks, dtype=np.int64)
        self.num_candidates = np.array([len(one.candidates) for one in questions], dtype=np.int64)
        self.answer = np.array([one.answer for one in questions], dtype=np.int64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(question, 2)``: words of the document and of the question."""
        return np.stack([self.document.lengths, self.question.lengths], axis=1)

    def batch(self, indices: Indices, widths: Sequence[int]) -> ClozeBatch:
        """Return these questions, padded."""
        texts = [rows.padded(indices, width)[0] for rows, width in zip((self.document, self.question), widths)]
        places = [
            rows.padded(indices, width)[0] - 1 for rows, width in zip((self.places, self.question_places), widths)
        ]
        others = (self.blank[indices], self.num_candidates[indices], self.answer[indices])
        return ClozeBatch(*map(torch.from_numpy, (*texts, *places, *others)))
