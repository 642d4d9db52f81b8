"""Synthetic documents whose class is determined by one known word of one sentence.

They measure whether attention finds it: its weight on that sentence, and on that word.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from foci.errors import ConfigError, check_positive
from foci.tasks.classify.reader import Document

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
_NAMES = "abcdefgh"
_TELLING = 3
"""Number of words that indicate each class."""


class Planted(NamedTuple):
    """A synthetic document, and the zero-based numbers of the word that determines its class and of its sentence."""

    document: Document
    sentence: int
    word: int


def planted(size: int, *, classes: int = 2, split: str = "train", seed: int = 0) -> list[Planted]:
    """Return documents of 3 to 8 sentences of 4 to 10 made-up words; one word of one sentence indicates the class.

    Example:
        >>> from foci.data.word_splitter import WordSplitter
        >>> ((text, label), sentence, word), *_ = planted(2)
        >>> WordSplitter("unicode").sentences(text)[sentence][word], label
        ('paka', 'b')
    """
    check_positive("planted", size=size, classes=classes)
    if classes > len(_NAMES):
        raise ConfigError(f"planted: classes is {classes}, expected at most {len(_NAMES)}.")
    chance = random.Random(f"{seed}/{split}")
    vocabulary = [first + second for first in _SYLLABLES for second in _SYLLABLES]
    random.Random("planted").shuffle(vocabulary)  # words mean the same for every seed
    telling = {name: [vocabulary.pop() for _ in range(_TELLING)] for name in _NAMES}
    made = []
    for _ in range(size):
        sentences = [
            [chance.choice(vocabulary) for _ in range(chance.randint(4, 10))] for _ in range(chance.randint(3, 8))
        ]
        label = chance.choice(_NAMES[:classes])
        sentence = chance.randrange(len(sentences))
        word = chance.randrange(len(sentences[sentence]))
        sentences[sentence][word] = chance.choice(telling[label])
        text = " ".join(" ".join(words).capitalize() + "." for words in sentences)
        made.append(Planted(Document(text, label), sentence, word))
    return made
