"""What a tagger has counted in its training sentences: words, letters, labels and intents; kept in the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from foci.data.vocabulary import Vocabulary
from foci.errors import CheckpointError
from foci.functional.crf.spans import SpanTags
from foci.mechanisms.structured import Constraints, constraints
from foci.tasks.tag.batches import Letters
from foci.tasks.tag.schemes import PLAIN, tag_names


@dataclass(frozen=True)
class TagLexicon:
    """The words, letters, labels and intents of a run, and the scheme that spans are predicted in."""

    vocabulary: Vocabulary
    trained: int
    """Ids of words with a learned vector, padding included."""
    vector_dim: int
    """Size of the given word vectors; 0 without any."""
    letters: Letters
    labels: tuple[str, ...]
    intents: tuple[str, ...]
    scheme: str

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The tags that are predicted, in the order of their numbers."""
        return tuple(tag_names(self.labels, self.scheme))

    def to_files(self) -> dict[str, str]:
        """Return all of it as JSON."""
        names = ("labels", "intents", "scheme", "trained", "vector_dim")
        return {
            "vocabulary.json": self.vocabulary.to_text(),
            "letters.json": self.letters.to_text(),
            "labels.json": json.dumps({name: getattr(self, name) for name in names}, ensure_ascii=False),
        }

    @classmethod
    def from_files(cls, read: Callable[[str], str]) -> TagLexicon:
        """Read what `to_files` gave."""
        vocabulary = Vocabulary.from_text(read("vocabulary.json"), "vocabulary.json")
        letters = Letters.from_text(read("letters.json"), "letters.json")
        try:
            told = json.loads(read("labels.json"))
            labels, intents = (tuple(map(_as_text, told[name])) for name in ("labels", "intents"))
            if not labels:
                raise ValueError("it has no labels")
            found = cls(
                vocabulary, int(told["trained"]), int(told["vector_dim"]), letters, labels, intents, told["scheme"]
            )
            if len(found.tags) < 1:
                raise ValueError("it has no tags")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"labels.json: the labels of the run cannot be read ({error}).") from error
        return found

    def allowed(self) -> Constraints | None:
        """Return which tags may follow each other; None for plain tags, which may in any order."""
        if self.scheme == PLAIN:
            return None
        with torch.device("cpu"):  # the model may be built without memory for its weights
            return constraints(self.tags, self.scheme)

    def span_tags(self, device: torch.device) -> SpanTags:
        """Return the tags that the spans of each label are made of."""
        number = {tag: place for place, tag in enumerate(self.tags)}

        def of(prefix: str) -> torch.Tensor:
            names = [f"{prefix}{label}" for label in self.labels]
            return torch.tensor([number[name] for name in names], dtype=torch.long, device=device)

        nothing = torch.full((len(self.labels),), -1, dtype=torch.long, device=device)
        if self.scheme == "BIO":
            begin, inner = of("B-"), of("I-")
            return SpanTags(single=begin, first=begin, inner=inner, last=inner, continuing=inner)
        if self.scheme == "BIOES":
            return SpanTags(single=of("S-"), first=of("B-"), inner=of("I-"), last=of("E-"), continuing=nothing)
        return SpanTags(single=of(""), first=of(""), inner=of(""), last=of(""), continuing=nothing)


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("its labels are not all texts")
    return value
