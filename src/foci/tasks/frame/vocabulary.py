"""Vocabularies of words, counted by their settings, and files of word vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from foci.data.vocabulary import Vocabulary, read_vectors, words_with_vectors
from foci.scripts import lowered
from foci.tasks.frame.assets import Assets
from foci.tasks.frame.task import Log
from foci.tasks.frame.vocabulary_settings import VectorVocabularyConfig, VocabularyConfig


@dataclass(frozen=True)
class WordAssets(Assets):
    """A vocabulary whose first words have a learned vector, and all of them a given one."""

    vocabulary: Vocabulary
    trained: int
    """Ids of words with a learned vector, padding included."""
    vector_dim: int
    """Size of the given word vectors; 0 without any."""


def count_words(settings: VocabularyConfig, documents: Iterable[Sequence[Sequence[str]]], buckets: int) -> Vocabulary:
    """Return the words of documents of sentences; all other words share ``buckets`` ids."""
    return Vocabulary.count(
        documents, size=settings.size, min_count=settings.min_count, buckets=buckets, lowercase=settings.lowercase
    )


def count_with_vectors(
    settings: VectorVocabularyConfig, sentences: Sequence[Sequence[str]], buckets: int
) -> WordAssets:
    """Return the frequent words of sentences, then the words of the file of vectors."""
    own = count_words(settings, ([sentence] for sentence in sentences), buckets)
    words, dim = list(own.words), 0
    if settings.vectors is not None:
        rare = {lowered(word) if settings.lowercase else word for sentence in sentences for word in sentence}
        listed, dim = words_with_vectors(settings.vectors, settings.vector_words, rare)
        known = set(words)
        words += [word for word in listed if word not in known]
    return WordAssets(Vocabulary(tuple(words), buckets, settings.lowercase), 1 + len(own.words), dim)


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
