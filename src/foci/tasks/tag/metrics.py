"""Metrics of tags: counted sentence by sentence, for validation and evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from foci.metrics.spans import Counts, Span, count_spans, micro, strict_spans
from foci.tasks.frame.task import Table
from foci.tasks.tag.schemes import PLAIN, to_spans, to_tags
from foci.tasks.tag.sentences import TaggedSentence


class Gold(NamedTuple):
    """What a sentence should be given."""

    tags: list[str]
    spans: list[Span]
    intent: str

    @classmethod
    def from_sentence(cls, sentence: TaggedSentence, scheme: str) -> Gold:
        """Return the tags of a sentence in a scheme, its spans and its intent."""
        spans = sentence.word_spans()
        return cls(to_tags(spans, len(sentence.words), scheme), spans, sentence.intent)


class Tally:
    """Counts of right tags, spans (by conlleval's convention), intents and whole sentences.

    Args:
        scheme: of the tags.
    """

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        self.sentences = self.words = self.right = self.exact = self.intents = self.right_intents = 0
        self.gold: list[list[Span]] = []
        self.found: list[list[Span]] = []

    def add(self, gold: Gold, tags: list[str], intent: str) -> None:
        """Count a sentence with its predicted tags and intent."""
        right = sum(have == want for have, want in zip(tags, gold.tags))
        hit = not gold.intent or gold.intent == intent
        self.sentences += 1
        self.words += len(tags)
        self.right += right
        self.intents += bool(gold.intent)
        self.right_intents += bool(gold.intent) and hit
        self.exact += right == len(tags) and hit
        self.gold.append(gold.spans)
        self.found.append(to_spans(tags, self.scheme).spans)

    def metrics(self) -> dict[str, float]:
        """Return span F1, the share of right tags, that of sentences with all right, and that of right intents."""
        found = {
            "f1": micro(count_spans(self.gold, self.found)).f1,
            "accuracy": self.right / max(self.words, 1),
            "exact": self.exact / max(self.sentences, 1),
        }
        return found | ({"intent_accuracy": self.right_intents / self.intents} if self.intents else {})


def strictly(tags: Sequence[str], scheme: str) -> list[Span]:
    """Return the spans that are formed as the scheme has it; of plain tags, each word."""
    return to_spans(tags, scheme).spans if scheme == PLAIN else strict_spans(tags, scheme)


def labels_table(counts: Mapping[str, Counts]) -> Table:
    """Return the metrics of each label."""
    rows = tuple(
        (label, one.gold, one.predicted, one.right, one.precision, one.recall, one.f1) for label, one in counts.items()
    )
    return Table(("label", "gold", "predicted", "right", "precision", "recall", "f1"), rows)
