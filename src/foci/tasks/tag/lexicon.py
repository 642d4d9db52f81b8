"""What a tagger has counted in its training sentences: words, letters, labels and intents; kept in the run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import torch
from annotated_types import MinLen

from foci.functional.crf.spans import SpanTags
from foci.mechanisms.structured import Constraints, constraints
from foci.tasks.frame.vocabulary import WordAssets
from foci.tasks.tag.batches import Letters
from foci.tasks.tag.schemes import PLAIN, tag_names


@dataclass(frozen=True)
class TagLexicon(WordAssets):
    """The words, letters, labels and intents of a run, and the scheme that spans are predicted in."""

    letters: Letters
    labels: Annotated[tuple[str, ...], MinLen(1)]
    intents: tuple[str, ...]
    scheme: str
    agreement: float
    """The share of the training words, or spans, that the run's rule for words reproduces from plain text."""

    def check(self) -> None:
        """Raise a ValueError if the labels give no tags in the scheme."""
        if not self.tags:
            raise ValueError("the labels give no tags")

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The tags that are predicted, in the order of their numbers."""
        return tuple(tag_names(self.labels, self.scheme))

    def allowed(self) -> Constraints | None:
        """Return which tags may follow each other; None for plain tags, which may in any order."""
        if self.scheme == PLAIN:
            return None
        with torch.device("cpu"):  # the model may be built without memory for its weights
            return constraints(self.tags, self.scheme)

    def span_tags(self, device: torch.device) -> SpanTags:
        """Return the tags that the spans of each label are made of."""
        number = {tag: place for place, tag in enumerate(self.tags)}

        def numbers(prefix: str) -> torch.Tensor:
            names = [f"{prefix}{label}" for label in self.labels]
            return torch.tensor([number[name] for name in names], dtype=torch.long, device=device)

        nothing = torch.full((len(self.labels),), -1, dtype=torch.long, device=device)
        if self.scheme == "BIO":
            begin, inner = numbers("B-"), numbers("I-")
            return SpanTags(single=begin, first=begin, inner=inner, last=inner, continuing=inner)
        prefixes = ("S-", "B-", "I-", "E-") if self.scheme == "BIOES" else ("", "", "", "")
        single, first, inner, last = map(numbers, prefixes)
        return SpanTags(single, first, inner, last, nothing)
