"""Tagged sentences as batches: ids of words, of the letters of each different word, and of tags."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from foci.data.batching import Indices, Sequences
from foci.data.vocabulary import Vocabulary
from foci.errors import DataError, check_positive

LONGEST_WORD = 30
"""Letters of a word that are read: the first ones."""


@dataclass(frozen=True)
class Letters:
    """Letters as ids: 0 is padding, 1 any letter that is not known.

    Example:
        >>> letters = Letters.count(["ab", "ba", "a"])
        >>> len(letters), letters.ids("bax")
        (4, [3, 2, 1])
    """

    known: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ids", {letter: number for number, letter in enumerate(self.known, start=2)})

    def __len__(self) -> int:
        return 2 + len(self.known)

    @classmethod
    def count(cls, words: Iterable[str], size: int = 5000) -> Letters:
        """Return the ``size`` most frequent letters; ties go by their code."""
        check_positive("Letters", size=size)
        counts: Counter[str] = Counter()
        for word in words:
            counts.update(word)
        return cls(tuple(letter for _, letter in sorted((-count, letter) for letter, count in counts.items())[:size]))

    def ids(self, word: str) -> list[int]:
        """Return the id of each letter of a word, of at most `LONGEST_WORD`."""
        known: dict[str, int] = self._ids  # type: ignore[attr-defined]
        return [known.get(letter, 1) for letter in word[:LONGEST_WORD]]

    def knows(self, word: str) -> bool:
        """Return whether all letters of a word that are read are known."""
        return 1 not in self.ids(word)

    def to_text(self) -> str:
        """Return the letters as JSON."""
        return json.dumps({"letters": "".join(self.known)}, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str, origin: str) -> Letters:
        """Read what `to_text` gave; ``origin`` is for messages."""
        try:
            return cls(tuple(json.loads(text)["letters"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{origin}: is no list of letters ({error}).") from error


class TagBatch(NamedTuple):
    """Sentences, padded with 0; see `foci.models.tagger.Tagger` for the first three.

    Tags are -1 where there is no word, intents -1 where a sentence has none.
    """

    words: Int[Tensor, "B T"]
    letters: Int[Tensor, "U C"]
    spelt: Int[Tensor, "B T"]
    tags: Int[Tensor, "B T"]
    intents: Int[Tensor, " B"]


class TagExamples:
    """Tagged sentences as ids, to be batched by `foci.data.TokenBatches`.

    Args:
        sentences: the words of each.
        tags: the numbers of the tags of each; None for sentences to predict.
        intents: the number of the intent of each, -1 for none.
        vocabulary: of words.
        letters: of letters.
    """

    def __init__(
        self,
        sentences: Sequence[Sequence[str]],
        tags: Sequence[Sequence[int]] | None,
        intents: Sequence[int],
        vocabulary: Vocabulary,
        letters: Letters,
    ) -> None:
        numbers: dict[str, int] = {}  # 0 stands for no word
        spelt = [[numbers.setdefault(word, len(numbers) + 1) for word in words] for words in sentences]
        self.words = Sequences((vocabulary.ids(words) for words in sentences), len(vocabulary))
        self.spelt = Sequences(spelt, len(numbers) + 1)
        self.letters = Sequences([[], *(letters.ids(word) for word in numbers)], len(letters))
        given = [[0] * len(words) for words in sentences] if tags is None else tags
        if [len(row) for row in given] != [len(words) for words in sentences] or len(intents) != len(sentences):
            raise DataError("TagExamples: expected one tag for each word, and one intent for each sentence.")
        self.tags = Sequences(given, 1 + max((max(row, default=0) for row in given), default=0))
        self.intents = np.array(intents, dtype=np.int64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """``(sentence, 1)``: words."""
        return self.words.lengths[:, None]

    def batch(self, indices: Indices, widths: Sequence[int]) -> TagBatch:
        """These sentences, padded."""
        words, valid = self.words.padded(indices, widths[0])
        spelt, _ = self.spelt.padded(indices, widths[0])
        tags, _ = self.tags.padded(indices, widths[0])
        different, place = np.unique(np.append(spelt.ravel(), 0), return_inverse=True)
        longest = int(self.letters.lengths[different].max(initial=1))
        letters, _ = self.letters.padded(different, longest)
        tags[~valid] = -1
        return TagBatch(
            *map(
                torch.from_numpy,
                (words, letters, place[:-1].reshape(spelt.shape), tags, self.intents[indices]),
            )
        )
