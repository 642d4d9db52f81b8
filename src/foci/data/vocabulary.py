"""Words as ids, and vectors for them from the files of GloVe and fastText.

Words not in the vocabulary share hashed buckets: the same word always has the same id, and two rare words rarely do.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from foci.data.tokenizer import PAD
from foci.data.vector_files import vector_lines
from foci.errors import ConfigError, DataError, check_positive
from foci.scripts import lowered


@dataclass(frozen=True)
class Vocabulary:
    """Words as ids: 0 is padding, then the words; unknown words share ``buckets`` ids by a hash of their letters.

    The rare words of the training documents are in the buckets too, so that their vectors are learned.

    Args:
        words: the words with their own id.
        buckets: number of ids that all other words share.
        lowercase: map "The" to "the".

    Example:
        >>> vocabulary = Vocabulary.count([[["The", "cat"], ["the", "dog"]]], size=1, min_count=1, buckets=3)
        >>> len(vocabulary), vocabulary.ids(["the", "THE", "cat", "cat"])
        (5, [1, 1, 3, 3])
    """

    words: tuple[str, ...]
    buckets: int = 1000
    lowercase: bool = True

    def __post_init__(self) -> None:
        check_positive("Vocabulary", buckets=self.buckets)
        object.__setattr__(self, "_ids", {word: number for number, word in enumerate(self.words, start=PAD + 1)})

    def __len__(self) -> int:
        return 1 + len(self.words) + self.buckets

    @classmethod
    def count(
        cls,
        documents: Iterable[Sequence[Sequence[str]]],
        *,
        size: int,
        min_count: int = 5,
        buckets: int = 1000,
        lowercase: bool = True,
    ) -> Vocabulary:
        """Return the ``size`` most frequent words with at least ``min_count`` occurrences; ties by their letters."""
        check_positive("Vocabulary", size=size, min_count=min_count)
        counts: Counter[str] = Counter()
        for document in documents:
            for sentence in document:
                counts.update([lowered(word) for word in sentence] if lowercase else sentence)
        frequent = [(-count, word) for word, count in counts.items() if count >= min_count]
        return cls(tuple(word for _, word in sorted(frequent)[:size]), buckets, lowercase)

    def __contains__(self, word: str) -> bool:
        """Whether the word has an id of its own."""
        known: dict[str, int] = self._ids  # type: ignore[attr-defined]
        return (lowered(word) if self.lowercase else word) in known

    def ids(self, words: Iterable[str]) -> list[int]:
        """Return the id of each word."""
        known: dict[str, int] = self._ids  # type: ignore[attr-defined]
        first = 1 + len(self.words)
        found = []
        for word in words:
            key = lowered(word) if self.lowercase else word
            number = known.get(key)
            # Not Python's hash, which differs between processes.
            found.append(
                first + zlib.crc32(key.encode("utf-8", "surrogatepass")) % self.buckets if number is None else number
            )
        return found

    @property
    def names(self) -> list[str]:
        """What each id stands for, each by a different name: padding, the words, the buckets."""
        return ["<pad>", *self.words, *(f"<bucket {number}>" for number in range(self.buckets))]

    def to_text(self) -> str:
        """Return it as JSON."""
        fields = {"words": self.words, "buckets": self.buckets, "lowercase": self.lowercase}
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str, origin: str) -> Vocabulary:
        """Parse the result of `to_text`; ``origin`` is for messages."""
        try:
            fields = json.loads(text)
            words = fields["words"]
            if not all(isinstance(word, str) for word in words):
                raise ValueError("its words are not all texts")
            return cls(tuple(words), int(fields["buckets"]), bool(fields["lowercase"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{origin}: is not a vocabulary that foci wrote ({error}). Restore the file.") from error


class Vectors(NamedTuple):
    """Word vectors for a vocabulary, 0 where the file has none, and for which ids it has one."""

    vectors: Float[NDArray[np.float32], "V D"]
    found: Bool[NDArray[np.bool_], " V"]


def read_vectors(path: str | Path, vocabulary: Vocabulary, dim: int) -> Vectors:
    """Read vectors of GloVe or fastText: a word and ``dim`` numbers per line; fastText's first line has counts.

    The file is one that `foci.data.vector_files` reads.
    Words that are not in the vocabulary are skipped.
    """
    path = Path(path)
    vectors, found = np.zeros((len(vocabulary), dim), np.float32), np.zeros(len(vocabulary), np.bool_)
    numbers = {word: number for number, word in enumerate(vocabulary.words, start=PAD + 1)}
    for line, entry in enumerate(vector_lines(path), start=1):
        word, *values = entry.rstrip(" ").rsplit(" ", dim)  # GloVe has words with spaces in them
        if line == 1 and entry.count(" ") == 1 and all(part.isdecimal() for part in entry.split(" ")):
            have = int(entry.split(" ")[1])
            if have != dim:
                raise _other_size(path, have, dim)
            continue
        # A word that is a number, followed by dim numbers, is more likely a longer vector.
        if len(values) < dim or (line <= 2 and " " in word and _is_number(word.rsplit(" ", 1)[1])):
            have = entry.rstrip(" ").count(" ")
            if line <= 2 and have > 1:
                raise _other_size(path, have, dim)
            raise DataError(
                f"{path}, line {line}: has {have} numbers after the word, expected {dim}. The file is damaged."
            )
        number = numbers.get(word)
        if number is None or found[number]:
            continue
        try:
            vectors[number] = [float(value) for value in values]
        except ValueError as error:
            raise DataError(f"{path}, line {line}: {error}, expected a word and {dim} numbers.") from error
        if not np.isfinite(vectors[number]).all():
            raise DataError(f"{path}, line {line}: holds NaN or an infinity, expected {dim} finite numbers.")
        found[number] = True
    if not found.any():
        raise DataError(
            f"{path}: has a vector for none of the {len(vocabulary.words)} words of the vocabulary. Is it a text file "
            "of word vectors, in the language of the documents?"
        )
    return Vectors(vectors, found)


def _other_size(path: Path, have: int, dim: int) -> ConfigError:
    return ConfigError(
        f"{path}: has vectors of {have} numbers, but the model's have {dim}. Set model.embedding_dim={have}."
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def size_of_vectors(path: str | Path) -> int:
    """Return the size of the vectors of a file, by its first line."""
    parts = next(vector_lines(Path(path)), "").rstrip(" ").split(" ")
    has_counts = len(parts) == 2 and all(part.isdecimal() for part in parts)
    if len(parts) < 2:
        raise DataError(f"{path}, line 1: holds no vectors, expected a word and its numbers on each line.")
    return int(parts[1]) if has_counts else len(parts) - 1


def words_with_vectors(path: str | Path, most: int, wanted: Container[str]) -> tuple[list[str], int]:
    """Return words of a file of vectors, in its order, and the size of its vectors.

    Args:
        path: as in `read_vectors`.
        most: how many of its first words are returned.
        wanted: words that are returned wherever they stand.
    """
    path = Path(path)
    words: dict[str, None] = {}
    dim = 0
    for line, entry in enumerate(vector_lines(path), start=1):
        parts = entry.rstrip(" ").split(" ")
        if line == 1 and len(parts) == 2 and all(part.isdecimal() for part in parts):
            dim = int(parts[1])
            continue
        dim = dim or len(parts) - 1
        word = " ".join(parts[: len(parts) - dim])
        if len(words) < most or word in wanted:
            words[word] = None
    if dim < 1 or not words:
        raise DataError(f"{path}, line 1: holds no vectors, expected a word and its numbers on each line.")
    return list(words), dim
