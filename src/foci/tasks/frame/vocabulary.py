"""The settings of a vocabulary of words, which every task that reads words has, and what is counted with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor

from foci.data.vocabulary import Vocabulary, read_vectors, words_with_vectors
from foci.files import FilePath
from foci.settings import settings
from foci.tasks.frame.assets import Assets
from foci.tasks.frame.task import Log


@settings
class VocabularyConfig:
    """The words with their own vector: counted in the training texts and kept in the run."""

    size: Annotated[int, Ge(1), Le(10_000_000)] = 50_000
    """Largest number of words."""
    min_count: Annotated[int, Ge(1)] = 2
    """How often a word must occur."""
    lowercase: bool = True
    """Map "The" to "the"."""

    def count(self, documents: Iterable[Sequence[Sequence[str]]], buckets: int) -> Vocabulary:
        """Return the words of documents of sentences; all other words share ``buckets`` ids."""
        return Vocabulary.count(
            documents, size=self.size, min_count=self.min_count, buckets=buckets, lowercase=self.lowercase
        )


@settings
class BucketVocabularyConfig(VocabularyConfig):
    """A vocabulary whose other words are distinguished by a hash."""

    buckets: Annotated[int, Ge(1), Le(10_000_000)] = 1000
    """Vectors that all other words share, by a hash of their letters."""


@dataclass(frozen=True)
class WordAssets(Assets):
    """A vocabulary whose first words have a learned vector, and all of them a given one."""

    vocabulary: Vocabulary
    trained: int
    """Ids of words with a learned vector, padding included."""
    vector_dim: int
    """Size of the given word vectors; 0 without any."""


@settings
class VectorVocabularyConfig(VocabularyConfig):
    """Which words have a learned vector of their own, and a file of given vectors beside them."""

    min_count: Annotated[int, Ge(1)] = 2
    """How often a word must occur; all rarer ones share a vector."""
    vectors: FilePath | None = None
    """A text file of GloVe or fastText vectors, which stand beside the learned ones and are not trained."""
    vector_words: Annotated[int, Ge(0)] = 100_000
    """How many words of that file are kept in the run, the first ones; those of the training texts always are."""

    def count_with_vectors(self, sentences: Sequence[Sequence[str]], buckets: int) -> WordAssets:
        """Return the frequent words of sentences, then the words of the file of vectors."""
        own = self.count(([sentence] for sentence in sentences), buckets)
        words, dim = list(own.words), 0
        if self.vectors is not None:
            rare = {word.lower() if self.lowercase else word for sentence in sentences for word in sentence}
            listed, dim = words_with_vectors(self.vectors, self.vector_words, rare)
            known = set(words)
            words += [word for word in listed if word not in known]
        return WordAssets(Vocabulary(tuple(words), buckets, self.lowercase), 1 + len(own.words), dim)


def take_vectors(weight: Tensor, path: str, vocabulary: Vocabulary, log: Log, trained: int | None = None) -> None:
    """Fill a table of vectors from a file.

    Args:
        weight: the table, one row per id of the vocabulary.
        path: a text file of GloVe or fastText vectors.
        vocabulary: the words of the table.
        log: called with the number of words that have a vector.
        trained: ids of words with a learned vector too, padding included. Default: all words.
    """
    vectors, has_vector = read_vectors(path, vocabulary, weight.shape[1])
    with torch.no_grad():
        weight.copy_(torch.from_numpy(vectors))
    known = 1 + len(vocabulary.words) if trained is None else trained
    own = int(has_vector[:known].sum())
    others = "" if trained is None else f", and {int(has_vector.sum()) - own:,} others"
    log(f"{path} has vectors for {own:,} of {known - 1:,} words{others}")
